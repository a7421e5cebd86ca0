"""Queries, bodies and responses of control, status and report; OpenAPI describes them."""

from typing import Literal

from pydantic import Field

from tapeway.admin.models.schema import (
    ChangeResult,
    Name,
    NearRecording,
    RequestModel,
    ResponseModel,
    Text,
)
from tapeway.core.model.control import Mode


class ReadinessQuery(RequestModel):
    record: bool = Field(False, description="Ready to record too, whatever the mode.")


class ModeQuery(RequestModel):
    cassette: Name | None = Field(None, description="Return the mode of this cassette.")


class ModeChange(RequestModel):
    mode: Mode | None = Field(
        description="If null, the cassette has no mode of its own any more and follows the mode for all."
    )
    cassette: Name | None = Field(None, description="Only for this cassette; for all if null.")
    all: bool = Field(False, description="Also for cassettes with a mode of their own, which ends.")


class FaultList(RequestModel):
    faults: list[dict[str, object]] = Field(
        description="Laid over what is replayed, the first that fits. Each has a `name` and what to "
        "`do`, and may have `match`, `times`, `after`, `retry_after`, `seconds` and `code`."
    )


class Insertion(RequestModel):
    cassette: Name
    mode: Mode | None = Field(None, description="The mode from now on; unchanged if null.")


class Ejection(RequestModel):
    cassette: Name | None = Field(None, description="The active cassette if null.")
    prune: bool = Field(False, description="Drop the recordings that the take did not use.")


class EjectQuery(RequestModel):
    cassette: Name | None = Field(None, description="The active cassette if null.")


class Rewinding(RequestModel):
    cassette: Name | None = Field(None, description="Only this cassette; all if null.")


class ReportQuery(RequestModel):
    format: Literal["json", "junit", "text"] = "json"


class Index(ResponseModel):
    name: str
    version: str
    api: str
    openapi: str


class Health(ResponseModel):
    status: Literal["ok"] = "ok"


class Readiness(ResponseModel):
    status: Literal["ready"] = "ready"


class StoreStatus(ResponseModel):
    url: str
    durability: str


class Counts(ResponseModel):
    """Requests by outcome since tapeway started."""

    replayed: int = 0
    recorded: int = 0
    live: int = 0
    miss: int = 0
    error: int = 0


class OwnMode(ResponseModel):
    """A cassette whose mode does not follow the mode for all."""

    name: str
    mode: Mode


class LoadedCassette(ResponseModel):
    name: str
    mode: Mode
    interactions: int
    unused: int = Field(description="Recordings that the take has not used.")


class EjectPreview(ResponseModel):
    """What ejecting a cassette now would do."""

    cassette: str
    loaded: bool = Field(description="Ejecting one that is not loaded is 409.")
    in_flight: int = Field(description="Recordings that it waits for.")
    interactions: int
    recorded: int = Field(description="Recordings made since it was loaded.")
    unused: int = Field(description="Recordings that the take has not used; `prune` drops them.")
    slots: list[str] = Field(description="Slots that point at it; their takes begin anew.")
    instances: list[str] = Field(description="Of a shared store: the instances that serve from it.")


class UpstreamConnections(ResponseModel):
    """Connections to upstreams that are open now."""

    in_use: int
    idle: int = Field(description="Kept for a later request.")


class Status(ResponseModel):
    version: str
    mode: Mode
    cassette: str = Field(description="The active cassette.")
    store: StoreStatus
    takes: int
    upstream_connections: int = Field(description="Connections opened since tapeway started.")
    open_connections: UpstreamConnections
    in_flight: int = Field(description="Live calls in progress that will be recorded.")
    counts: Counts
    cassettes: list[LoadedCassette] = Field(description="The loaded cassettes.")
    own_modes: list[OwnMode] = Field(
        description="The cassettes with a mode of their own, loaded or not."
    )


class Clients(ResponseModel):
    """How programs reach the proxy."""

    proxy: str = Field(description="Its URL.")
    base_urls: dict[str, str] = Field(
        description="The variables that SDKs read, with the base URL of each."
    )
    routes: dict[str, str] = Field(
        description="The base URL of each route's name, as the SDK of its provider expects it."
    )
    keys: list[list[str]] = Field(
        description="The variables of each provider's key. In a replay, SDKs need a dummy in one."
    )
    record_command: Text | None = Field(
        None, description="The option `record_command`: the command that records what was missed."
    )


class ModeInForce(ResponseModel):
    mode: Mode
    cassette: str | None = Field(description="Only for this cassette; for all if null.")
    cassettes: list[OwnMode] = Field(description="The cassettes with a mode of their own.")


class Inserted(ResponseModel):
    cassette: str
    mode: Mode
    warning: str | None = Field(
        default=None,
        exclude_if=lambda text: text is None,
        description="In mode `replay`: that there is no such cassette, and which may be meant.",
    )


class Takes(ResponseModel):
    takes: int


class Recorded(ResponseModel):
    """A recording in a report."""

    index: int
    method: Text
    path: Text


class Unused(Recorded):
    mark: str | None = Field(
        description="`tapeway cassette prune` finds the recording by it; null if the index is permanent."
    )


class Stale(Recorded):
    day: str = Field(description="The day of its last check or of its recording.")


class Unreached(Recorded):
    first: int = Field(description="The place of the first message that was not reached.")
    count: int = Field(description="How many messages of the recording were not reached.")
    message: Text = Field(description="The same as a sentence, with what the recording waited for.")


class Dated(Recorded):
    kind: Literal["date", "time", "path"] = Field(
        description="Whether the request has the day of the recording, or only its time of day, "
        "or only a temporary folder."
    )
    advice: Text = Field(
        description="The rule by which the request would match, or why none is suggested."
    )


class Tokens(ResponseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Unpriced(ResponseModel):
    """A model whose price is not known."""

    model: Text
    calls: int
    prompt_tokens: int
    completion_tokens: int


class Saved(ResponseModel):
    """What replays saved."""

    calls: int
    tokens: int
    usd: float | None = Field(
        description="US dollars; null where no replayed model has a known price."
    )
    unpriced: list[Unpriced] = Field(
        description="Replayed models without a known price: they count for nothing in `usd`."
    )
    prices: str = Field(description="Whose prices these are, and of which day.")


class Missed(ResponseModel):
    """A request that was missed; all fields but `times` are of the first miss."""

    method: Text
    path: Text
    message: Text
    nearest: list[NearRecording] = Field(
        description="The most similar recordings, the nearest first."
    )
    suggestion: Text | None = Field(
        description="The rule for `[rules]` that would make the nearest recording match."
    )
    record_command: Text | None = Field(None, description="The command that records the request.")
    times: int


class Unrecorded(ResponseModel):
    """A live answer that was not stored although its mode records."""

    method: Text
    path: Text
    status: int
    reason: Text = Field(description="Why it was not stored, and the option that stores it.")
    times: int


class Faulted(ResponseModel):
    """A call that a fault was laid over, and what its client did next."""

    fault: str
    do: str
    method: Text
    path: Text
    next: Literal["retried", "took_for_whole", "gave_up"] = Field(
        description="`took_for_whole`: the next request holds the conversation with a cut answer."
    )
    after_s: float | None = Field(description="How many seconds later.")
    retry_after: float | None = Field(description="The wait that the fault asked for.")
    kept_retry_after: bool | None = Field(description="Whether the client waited so long.")
    message: Text


class ReportedCassette(ResponseModel):
    name: str
    replayed: int
    recorded: int
    live: int
    failed: dict[str, int] = Field(
        description="Calls that got an error of tapeway's own, by its code, such as "
        "`upstream_unreachable`."
    )
    misses: list[Missed] = Field(description="Each request once, in order of arrival.")
    unused: list[Unused] = Field(description="Recordings that the take has not used.")
    duplicates: list[list[Recorded]] = Field(
        description="Groups of recordings of the same request."
    )
    unmarked: list[Recorded] = Field(
        description="Recordings that the run made or replayed and that are streams without their "
        "protocol's end mark: they may be incomplete."
    )
    stale: list[Stale] = Field(description="Recordings older than `max_age`.")
    dated: list[Dated] = Field(
        description="Recordings that the run made and whose requests say when that was: they will "
        "miss later."
    )
    unrecorded: list[Unrecorded] = Field(
        description="Live answers that were not stored, each once."
    )
    repeated: list[Recorded] = Field(
        description="Recordings of a model's answers that equal calls got too, in the take that made "
        "them: the model would have given each of them another answer."
    )
    told_apart: list[str] = Field(
        description="Equal requests of a take that got different answers and that a header tells "
        "apart: the request, and the rule that has the header count."
    )
    unreached: list[Unreached] = Field(
        description="Replayed WebSocket sessions whose tail no client of this run reached."
    )
    faulted: list[Faulted] = Field(description="The calls that faults were laid over, in order.")
    redacted: int = Field(
        description="Secrets that were replaced in the recordings that the run made."
    )
    redacted_kinds: dict[str, int] = Field(
        description="The same by kind, as the placeholders name it: a name such as `set-cookie`."
    )
    elsewhere: list[str] = Field(
        description="Origins of addresses in responses that no route leads to: calls to them go around "
        "tapeway."
    )
    usage: Tokens = Field(description="Tokens the upstream would have charged for the replays.")
    saved: Saved
    retries: int = Field(description="Further tries of calls that SDKs retried.")


class Report(ResponseModel):
    cassettes: list[ReportedCassette]
    upstream_connections: int
    bypassed: list[str] = Field(
        default=[],
        description="Hosts that the command of `tapeway run` asked for past the proxy: with `--offline` "
        "in vain, with `--tls` alone by a tunnel.",
    )
    offline: Literal["network namespace", "proxy variables"] | None = Field(
        default=None,
        description="What kept the command of `tapeway run --offline` off the network.",
    )


class Ejected(Report, ChangeResult):
    """The report of the ejected cassette."""
