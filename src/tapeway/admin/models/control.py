"""What admin calls carry and are answered with; the OpenAPI document describes these models."""

from typing import Literal

from pydantic import Field

from tapeway.admin.models.schema import Name, Said, Sent
from tapeway.core.model.control import Mode


class ModeQuery(Sent):
    cassette: Name | None = Field(None, description="The mode of this cassette.")


class ModeChange(Sent):
    mode: Mode
    cassette: Name | None = Field(None, description="For this cassette alone, for all if null.")


class Insertion(Sent):
    cassette: Name
    mode: Mode | None = Field(None, description="The mode to go on in, the one in force if null.")


class Ejection(Sent):
    cassette: Name | None = Field(None, description="The active one if null.")
    prune: bool = Field(False, description="Drop the recordings this take did not touch.")


class Rewinding(Sent):
    cassette: Name | None = Field(None, description="This one alone, all if null.")


class ReportQuery(Sent):
    format: Literal["json", "junit", "text"] = "json"


class Index(Said):
    name: str
    version: str
    api: str
    openapi: str


class Health(Said):
    status: Literal["ok"] = "ok"


class Readiness(Said):
    status: Literal["ready"] = "ready"


class StoreStatus(Said):
    url: str
    durability: str


class Counts(Said):
    """Requests by how they ended, since the process started."""

    replayed: int = 0
    recorded: int = 0
    live: int = 0
    miss: int = 0
    error: int = 0


class LoadedCassette(Said):
    name: str
    mode: Mode
    interactions: int
    unused: int = Field(description="Recordings this take has not touched.")


class Status(Said):
    version: str
    mode: Mode
    cassette: str = Field(description="The active one.")
    store: StoreStatus
    takes: int
    upstream_connections: int = Field(description="Opened since the process started.")
    counts: Counts
    cassettes: list[LoadedCassette] = Field(description="Those that are in.")


class InForce(Said):
    """What was steered. With laggards it is answered 202: they have not applied it yet."""

    laggards: list[str] = Field(
        default=[], description="Instances of a shared store that did not follow within 2 seconds."
    )


class ModeInForce(InForce):
    mode: Mode
    cassette: str | None = Field(description="For this cassette alone, for all if null.")


class Inserted(InForce):
    cassette: str
    mode: Mode


class Takes(InForce):
    takes: int


class Recorded(Said):
    """A recording as a report names it."""

    index: int
    method: str
    path: str


class Unused(Recorded):
    mark: str | None = Field(
        description="What `tapeway cassette prune` finds it by; null where its index is for good."
    )


class Tokens(Said):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Saved(Said):
    """What replaying spared; `usd` is null as long as no prices are configured."""

    calls: int
    tokens: int
    usd: float | None


class ReportedCassette(Said):
    name: str
    replayed: int
    recorded: int
    live: int
    misses: list[str] = Field(description="Method and path, in the order they came.")
    unused: list[Unused] = Field(description="What this take has not touched.")
    duplicates: list[list[Recorded]] = Field(description="Recordings of one and the same request.")
    usage: Tokens = Field(description="What the upstream would have charged for the replays.")
    saved: Saved
    retries: int = Field(description="Tries beyond the first of calls that SDKs repeated.")


class Report(Said):
    cassettes: list[ReportedCassette]
    upstream_connections: int


class Ejected(Report, InForce):
    """With laggards, these go on in the take that ended."""
