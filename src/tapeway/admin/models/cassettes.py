"""What calls carry that change cassettes, and what they are answered with.

What admin calls carry and are answered with; the OpenAPI document describes these models.
"""

from typing import Literal

from pydantic import Field

from tapeway.admin.models.schema import MAX_INDEX, Limit, Name, Said, Sent
from tapeway.core.model.control import Mode
from tapeway.engine.editing.screening import Secrets

_SECRETS = (
    "What to do where something shows a secret: nothing is kept, it is replaced, or nobody looks."
)


class CassetteQuery(Sent):
    name: Name | None = Field(None, description="This one alone.")
    counts: bool = Field(True, description="Whether to count what takes reading to count.")
    after: str | None = Field(None, description="The name after which this page begins.")
    limit: Limit = 100


class CassetteItem(Said):
    name: str
    active: bool
    loaded: bool
    mode: Mode
    interactions: int | None = Field(
        description="Null where it is not known yet: see the documentation, or `error`."
    )
    size_bytes: int | None = Field(description="Null while nothing of it is stored.")
    modified_at: str | None = Field(description="ISO 8601, UTC; null while nothing is stored.")
    mark: str | None = Field(description="Another one after every change; says nothing else.")
    error: str | None = Field(description="Why it cannot be read, if it cannot.")


class CassettePage(Said):
    cassettes: list[CassetteItem]
    next: str | None = Field(description="`after` for the next page, null on the last.")


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
