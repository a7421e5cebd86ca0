"""What calls carry that change cassettes, and what they are answered with."""

from typing import Literal

from pydantic import Field

from tapeway.admin.payloads import MAX_INDEX, Said, Sent
from tapeway.engine.editing.screening import Secrets

_SECRETS = (
    "What to do where something shows a secret: nothing is kept, it is replaced, or nobody looks."
)
_SHA256 = r"^[0-9a-f]{64}$"


class ChangeQuery(Sent):
    secrets: Secrets = Field("refuse", description=_SECRETS)


class ImportQuery(ChangeQuery):
    format: Literal["json", "yaml", "jsonl", "har"] | None = Field(
        None, description="What the body is in; by its Content-Type if not given."
    )


class ExportQuery(Sent):
    format: Literal["json", "yaml", "jsonl", "har"] = "json"
    losses: Literal["refuse", "allow"] = Field(
        "refuse", description="Whether interactions may be left out that the format cannot hold."
    )


class Superseded(Sent):
    """An interaction by its index, and by its digest in case it moved."""

    index: int = Field(ge=0, le=MAX_INDEX)
    sha256: str = Field(pattern=_SHA256)


class CopyQuery(Sent):
    after: int | None = Field(
        None,
        ge=0,
        le=MAX_INDEX,
        description="The index after which this copy begins; its digest is of what it holds then.",
    )


class Head(Sent):
    """What a cassette says of itself."""

    created_at: str
    run_id: str
    meta: dict[str, object] = Field(default_factory=dict)


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


class SourceOf(Said):
    route: str
    base: str


class Outlined(Said):
    cassette: str
    head: Head
    interactions: int
    sources: list[SourceOf] = Field(
        description="Routes and bases of the interactions, each pair once."
    )


class Headed(Said):
    cassette: str
    head: str = Field(description="The digest of what the cassette says of itself.")
    replaced: int = Field(description="Places that showed a secret, and show a placeholder now.")


class Edited(Said):
    cassette: str
    interaction: Placed | None = Field(description="Where it is now; null for one removed.")


class Imported(Said):
    cassette: str
    interactions: int
    sha256: str = Field(description="The digest of the cassette, its ETag.")
    replaced: int = Field(description="Places that showed a secret, and show a placeholder now.")
    losses: list[str] = Field(description="What the format said and no cassette can hold.")


class Removed(Said):
    cassette: str


class Claimed(Said):
    cassette: str
    durability: str = Field(description="What survives once an append is answered.")


class Released(Said):
    cassette: str
    released: bool = Field(description="False where it is used here besides, and so stays in.")


class BodyKept(Said):
    sha256: str
    size: int
