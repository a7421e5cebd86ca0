"""Queries, bodies and responses about whole cassettes; the OpenAPI document describes them."""

from typing import Literal

from pydantic import Field

from tapeway.admin.models.schema import (
    ChangeResult,
    Limit,
    Name,
    RequestModel,
    ResponseModel,
)
from tapeway.core.model.control import Mode
from tapeway.engine.editing.screening import Secrets

_SECRETS = (
    "For content that shows a secret: refuse the call, replace the secret, or store it unchecked."
)
_REPLACED = "How many places showed a secret and have a placeholder now."


class CassetteQuery(RequestModel):
    name: Name | None = Field(None, description="Only this cassette.")
    counts: bool = Field(
        True, description="Whether to read cassettes in order to count their interactions."
    )
    after: str | None = Field(None, description="The name after which the page begins.")
    limit: Limit = 100


class CassetteItem(ResponseModel):
    name: str
    active: bool
    loaded: bool
    mode: Mode
    interactions: int | None = Field(
        description="Null if not counted yet, or if the cassette cannot be read: see `error`."
    )
    size_bytes: int | None = Field(description="Null while nothing is stored.")
    modified_at: str | None = Field(description="ISO 8601, UTC; null while nothing is stored.")
    mark: str | None = Field(description="Opaque; differs after every change.")
    error: str | None = Field(description="Why it cannot be read; null if it can.")


class CassettePage(ResponseModel):
    cassettes: list[CassetteItem]
    next: str | None = Field(description="`after` for the next page; null on the last.")


class ChangeQuery(RequestModel):
    secrets: Secrets = Field("refuse", description=_SECRETS)


class ImportQuery(ChangeQuery):
    format: Literal["json", "yaml", "jsonl", "har"] | None = Field(
        None, description="The format of the body; by default its Content-Type decides."
    )


class ExportQuery(RequestModel):
    format: Literal["json", "yaml", "jsonl", "har"] = "json"
    losses: Literal["refuse", "allow"] = Field(
        "refuse", description="Whether to leave out interactions that the format cannot hold."
    )


class Head(RequestModel):
    """A cassette's metadata."""

    created_at: str
    run_id: str
    meta: dict[str, object] = Field(default_factory=dict)


class Imported(ChangeResult):
    cassette: str
    interactions: int
    sha256: str = Field(description="The digest of the cassette, as in its ETag.")
    replaced: int = Field(description=_REPLACED)
    losses: list[str] = Field(description="What the format has and no cassette can hold.")


class Removed(ChangeResult):
    cassette: str


class Released(ChangeResult):
    cassette: str
    released: bool = Field(description="False if it is in use here too, and so stays loaded.")
