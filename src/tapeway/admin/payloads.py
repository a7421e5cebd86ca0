"""What admin calls carry and are answered with; the OpenAPI document describes these models."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from tapeway.core.http.routing import check_cassette_name
from tapeway.core.model.control import Mode, Outcome

_SEGMENT = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
MAX_INDEX = 10**15 - 1
NAME_PATTERN = rf"^{_SEGMENT}(/{_SEGMENT}){{0,7}}$"

Name = Annotated[
    str, AfterValidator(check_cassette_name), Field(json_schema_extra={"pattern": NAME_PATTERN})
]
Limit = Annotated[int, Field(ge=1, le=1000, description="The most there may be on this page.")]


class Sent(BaseModel):
    """What a call carries: no unknown field, no wrong type."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Said(BaseModel):
    """What a call is answered with; later versions may say more."""

    model_config = ConfigDict(frozen=True)


class Nothing(Sent):
    """No field at all."""


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


class CassetteQuery(Sent):
    name: Name | None = Field(None, description="This one alone.")
    counts: bool = Field(True, description="Whether to count what takes reading to count.")
    after: str | None = Field(None, description="The name after which this page begins.")
    limit: Limit = 100


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


class JournalQuery(Sent):
    outcome: Outcome | None = None
    cassette: Name | None = None
    after: str | None = Field(
        None, description="The id after which this page begins, as `next` gave it."
    )
    limit: Limit = 100


class Acceptance(Sent):
    rule: dict[str, object] | None = Field(
        None, description="Keys and values as below `[rules]`; what is suggested if null."
    )


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


class InteractionPage(Said):
    """`interactions` as the cassette's document shows them, in order of their index."""

    interactions: list[dict[str, object]]
    next: int | None = Field(description="`after` for the next page, null on the last.")


class MessagePage(Said):
    """One conversation after the other; `left_out` are calls that could not be read, and why."""

    messages: list[dict[str, object]]
    left_out: list[dict[str, object]]
    next: int | None = Field(description="`after` for the next page, null on the last.")


class NearRecording(Said):
    """A recording and what sets its request apart from the one that was missed."""

    index: int
    differences: list[Mapping[str, object]] = Field(
        description="Each a `path` and of `recorded` and `requested` what there is."
    )
    more: int = Field(description="How many further differences there are.")


class JournalEntry(Said):
    """One proxied request, credentials taken out."""

    id: str
    at: str = Field(description="When it came, ISO 8601, UTC.")
    cassette: str
    route: str
    method: str
    path: str
    outcome: Outcome
    status: int
    interaction: int | None = Field(description="The index of the recording, if there is one.")
    duration_ms: float
    match_key: str | None
    message: str | None = Field(
        description="What the client was told of a miss or an error, or what was forgiven."
    )
    nearest: list[NearRecording] = Field(description="Of a miss: the nearest recordings first.")
    suggestion: str | None = Field(
        description="Of a miss: what would make the nearest match, to be pasted below `[rules]`."
    )
    attempt: int | None = Field(description="Which try of one call it is, where the SDK says so.")


class JournalPage(Said):
    """Newest first."""

    entries: list[JournalEntry]
    next: str | None = Field(description="`after` for the next page, null on the last.")


class Cleared(Said):
    removed: int


class Accepted(Said):
    cassette: str
    rules: Mapping[str, object] = Field(description="All that are in force for it now.")
    suggestion: str = Field(description="What was added, as it stands below `[rules]`.")


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


class Fault(Said):
    type: str
    code: str
    status: str
    message: str
    param: str | None


class Error(Said):
    """Any answer of 400 or above; `error.code` is stable, `message` says what to do."""

    type: Literal["error"]
    error: Fault
    message: str
    request_id: str
    tapeway: dict[str, object]
