"""Queries, bodies and responses about interactions; the OpenAPI document describes them."""

from pydantic import Field

from tapeway.admin.models.cassettes import Head
from tapeway.admin.models.schema import MAX_INDEX, ChangeResult, Limit, RequestModel, ResponseModel

_SHA256 = r"^[0-9a-f]{64}$"


class InteractionQuery(RequestModel):
    after: int | None = Field(
        None, ge=0, le=MAX_INDEX, description="The index after which the page begins."
    )
    limit: Limit = 100


class MessageQuery(RequestModel):
    conversation: int | None = Field(
        None, ge=0, le=MAX_INDEX, description="Only this conversation."
    )
    after: int | None = Field(
        None, ge=0, le=MAX_INDEX, description="The message number after which the page begins."
    )
    first: int | None = Field(
        None,
        ge=0,
        le=MAX_INDEX,
        description="Only what came up first in this interaction or later.",
    )
    last: int | None = Field(
        None,
        ge=0,
        le=MAX_INDEX,
        description="Only what came up first in this interaction or before.",
    )
    text: str | None = Field(None, min_length=1, max_length=200, description="Only with this text.")
    limit: Limit = 100


class InteractionPage(ResponseModel):
    """Interactions in the form of the cassette's document, by index."""

    interactions: list[dict[str, object]]
    next: int | None = Field(description="`after` for the next page; null on the last.")


class MessagePage(ResponseModel):
    """Messages, conversation by conversation; `left_out` has the calls that could not be read, and why."""

    messages: list[dict[str, object]]
    left_out: list[dict[str, object]]
    found: int = Field(description="How many messages there are on all pages.")
    next: int | None = Field(description="`after` for the next page; null on the last.")


class Superseded(RequestModel):
    """An interaction by index, and by digest in case the interaction has moved."""

    index: int = Field(ge=0, le=MAX_INDEX)
    sha256: str = Field(pattern=_SHA256)
    required: bool = Field(
        False, description="Whether nothing is appended if this interaction was changed or removed."
    )


class Additions(RequestModel):
    """Interactions in the form of the cassette's document; an index that is free is used."""

    interactions: list[dict[str, object]] = Field(min_length=1, max_length=1000)
    supersedes: list[list[Superseded]] | None = Field(
        None, description="For each interaction, those it replaces."
    )
    head: Head | None = Field(None, description="Metadata for a cassette created by this call.")
    expected: int | None = Field(
        None,
        ge=0,
        le=MAX_INDEX,
        description="Append only if the cassette has so many interactions.",
    )


class Placed(ResponseModel):
    index: int
    sha256: str = Field(description="The digest of the interaction, as in its ETag.")


class Added(ResponseModel):
    """The stored interactions, in the order they were sent."""

    cassette: str
    head: str = Field(description="The digest of the cassette's metadata.")
    count: int = Field(description="How many interactions the cassette has now.")
    interactions: list[Placed]


class Edited(ChangeResult):
    cassette: str
    interaction: Placed | None = Field(description="Where it is now; null if it was removed.")
    repeated: list[str] = Field(
        default=[],
        exclude_if=lambda sentences: not sentences,
        description="Requests of the cassette that repeat the answer otherwise: a sentence for each. "
        "Absent where there are none.",
    )


class BodyKept(ResponseModel):
    sha256: str
    size: int
