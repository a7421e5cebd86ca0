"""What admin calls carry and are answered with; the OpenAPI document describes these models.

What calls carry that change cassettes, and what they are answered with.
"""

from pydantic import Field

from tapeway.admin.models.cassettes import Head
from tapeway.admin.models.schema import MAX_INDEX, Limit, Said, Sent

_SHA256 = r"^[0-9a-f]{64}$"


class InteractionQuery(Sent):
    after: int | None = Field(
        None, ge=0, le=MAX_INDEX, description="The index after which this page begins."
    )
    limit: Limit = 100


class MessageQuery(Sent):
    conversation: int | None = Field(None, ge=0, le=MAX_INDEX, description="This one alone.")
    after: int | None = Field(
        None, ge=0, le=MAX_INDEX, description="The number after which this page begins."
    )
    limit: Limit = 100


class InteractionPage(Said):
    """`interactions` as the cassette's document shows them, in order of their index."""

    interactions: list[dict[str, object]]
    next: int | None = Field(description="`after` for the next page, null on the last.")


class MessagePage(Said):
    """One conversation after the other; `left_out` are calls that could not be read, and why."""

    messages: list[dict[str, object]]
    left_out: list[dict[str, object]]
    next: int | None = Field(description="`after` for the next page, null on the last.")


class Superseded(Sent):
    """An interaction by its index, and by its digest in case it moved."""

    index: int = Field(ge=0, le=MAX_INDEX)
    sha256: str = Field(pattern=_SHA256)


class Additions(Sent):
    """Each interaction as the cassette's document has it; its index is taken where it is free."""

    interactions: list[dict[str, object]] = Field(min_length=1, max_length=1000)
    supersedes: list[list[Superseded]] | None = Field(
        None, description="For each interaction those it takes the place of."
    )
    head: Head | None = Field(None, description="Counts where the cassette is a new one.")


class Placed(Said):
    index: int
    sha256: str = Field(description="The digest of the interaction's document, its ETag.")


class Added(Said):
    """Durable, in the order they were sent."""

    cassette: str
    head: str = Field(description="The digest of what the cassette says of itself.")
    interactions: list[Placed]


class Edited(Said):
    cassette: str
    interaction: Placed | None = Field(description="Where it is now; null for one removed.")


class BodyKept(Said):
    sha256: str
    size: int
