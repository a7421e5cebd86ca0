"""Responses of the routes that show requests and recordings to people; OpenAPI describes them."""

from typing import Literal

from pydantic import Field

from tapeway.admin.models.interactions import InteractionQuery
from tapeway.admin.models.journal import JournalEntry
from tapeway.admin.models.schema import MAX_INDEX, Limit, Name, RequestModel, ResponseModel, Text
from tapeway.inspection.titles import Order, Show

Steps = list[str | int]


class ComparedRequest(ResponseModel):
    """A missed request as matching sees it: redacted, under the cassette's rules."""

    document: dict[str, object] | None = Field(
        description="Route, method, path, query, headers, content and body; null if it is too large."
    )
    size: int = Field(description="Bytes of its body.")
    note: str | None = Field(description="Why the document is not there, or not whole.")


class PlacedDifference(ResponseModel):
    """A place where two documents differ; a side that has nothing there is left out."""

    path: str
    steps: Steps = Field(description="The keys and positions that lead there.")
    recorded_steps: Steps | None = Field(
        description="The same in the recorded document, if that is another place."
    )
    recorded: object = Field(None, description="Long values are cut to where they differ.")
    requested: object = None


class NearestCompared(ResponseModel):
    """The nearest recording as matching sees it, and how the missed request differs."""

    index: int
    document: dict[str, object] | None
    note: str | None
    differences: list[PlacedDifference] = Field(description="At most 200.")
    more: bool = Field(description="Whether there may be further differences.")


class VerdictOfPart(ResponseModel):
    part: Literal["route", "method", "path", "query", "body", "headers", "repeats"]
    verdict: Literal["ok", "differs", "not_compared"]
    reason: str


class PreviewedAnswers(ResponseModel):
    answers: list[int] = Field(description="The recordings that would answer, in order.")
    searched: int
    complete: bool = Field(description="Whether all recordings of the method were searched.")


class AnsweringRecording(ResponseModel):
    cassette: str
    index: int
    by: Literal["key", "rules", "alias", "identifiers", "live"]
    reason: str


class WholeEntry(ResponseModel):
    """A request, with the reason of the hit or of the miss, and the recordings that would answer."""

    entry: JournalEntry
    request: ComparedRequest | None = Field(description="Of a miss.")
    nearest: NearestCompared | None = Field(description="Of a miss, if there is one.")
    verdicts: list[VerdictOfPart] = Field(description="Of a miss: each of its parts.")
    suggestion: str | None
    preview: PreviewedAnswers | None = Field(
        description="What would answer if the suggestion were accepted; nothing is changed."
    )
    recording: AnsweringRecording | None = Field(
        description="The recording that answered or was made, and how it was found."
    )
    previous: str | None = Field(
        description="The id of the entry before it of the same cassette, if that is there."
    )
    next: str | None = Field(description="The id of the entry after it of the same cassette.")


class Medium(ResponseModel):
    """Media in a body: the body itself, or a string in its JSON."""

    path: str
    steps: Steps
    media_type: str
    size: int = Field(description="Bytes, decoded.")
    encoding: Literal["raw", "base64", "data_url"]


class ReadBody(ResponseModel):
    kind: Literal["empty", "json", "form", "text", "bytes"]
    media_type: str
    size: int = Field(description="Bytes of the whole body, without a content coding.")
    text: str | None = Field(description="The text, at most its first MiB; null if it is none.")
    base64: str | None = Field(description="The octets of what is no text, at most the first MiB.")
    cut: bool = Field(description="Whether there is more than is shown.")
    sha256: str | None = Field(description="Its name below /bodies/, if it is in a file.")
    media: list[Medium] = Field(description="At most 100.")


class ReadRequest(ResponseModel):
    headers: list[list[str]]
    body: ReadBody


class ReadResponse(ResponseModel):
    status: int | None
    reason: str
    headers: list[list[str]]
    verdict: str
    body: ReadBody


class ReadAnswer(ResponseModel):
    """The assembled answer of an LLM, or one assembled choice."""

    role: str
    text: str
    thinking: str
    tool_calls: list[dict[str, object]]
    attachments: list[object]
    stop_reason: str
    error: str
    notes: list[str]


class ReadPart(ResponseModel):
    """A part of a message: a text, a thought, a tool's call or result, or an attachment."""

    kind: Literal["text", "thinking", "call", "result", "attachment"]
    text: str
    name: str = Field(description="Of a tool.")
    id: str = Field(description="Of a tool's call.")
    value: object = Field(description="The arguments of a call; what is known of an attachment.")


class ReadMessage(ResponseModel):
    role: str
    parts: list[ReadPart]


class TimedChunk(ResponseModel):
    at_ms: float = Field(description="Since the request was sent.")
    start: int
    size: int


class TimedEvent(ResponseModel):
    at_ms: float
    chunk: int = Field(description="The number of the chunk that completed it.")
    text: str


class Timeline(ResponseModel):
    chunks: list[TimedChunk] = Field(description="At most 5,000.")
    chunks_left_out: int
    events: list[TimedEvent] = Field(description="At most 5,000, and a MiB of text.")
    events_left_out: int
    first_byte_ms: float | None
    last_byte_ms: float | None
    longest_gap_ms: float | None
    longest_gap_at_ms: float | None
    tokens_per_second: float | None


class SessionSound(ResponseModel):
    media_type: str
    data: str | None = Field(description="In base64; null beyond 4 MiB of one session.")
    size: int = Field(description="Bytes of the samples.")


class ReadSessionMessage(ResponseModel):
    """A message of a session. Pieces of one text or of one sound are joined."""

    by: Literal["client", "service"]
    type: str
    at_ms: float
    until_ms: float = Field(description="When the last of its pieces came.")
    pieces: int
    text: str
    sound: SessionSound | None
    value: dict[str, object] | None = Field(description="The JSON of a message that is no piece.")


class SessionClose(ResponseModel):
    code: int
    reason: str
    by: Literal["client", "service"]


class ReadSession(ResponseModel):
    """A recorded WebSocket session."""

    messages: list[ReadSessionMessage] = Field(description="At most 5,000, and a MiB of text.")
    left_out: int
    close: SessionClose | None = Field(description="Null where nobody saw the end.")


class InteractionView(ResponseModel):
    """An interaction for reading; without HTTP only `kind` and `document` are set."""

    index: int = Field(description="0 for a call that is not recorded.")
    kind: str
    summary: str
    method: str | None
    url: str | None
    route: str | None
    tags: list[str]
    latency_ms: float | None
    provider: str | None
    endpoint: str | None
    model: str | None
    usage: dict[str, object] | None
    failure: dict[str, object] | None
    request: ReadRequest | None
    response: ReadResponse | None
    messages: list[ReadMessage] = Field(
        description="What the request of an LLM's call says, its instructions first."
    )
    answers: list[ReadAnswer]
    timeline: Timeline | None
    session: ReadSession | None = Field(
        description="The messages of a WebSocket session; null for anything else."
    )
    document: dict[str, object] | None


class InteractionTitle(ResponseModel):
    """An interaction without its bodies."""

    index: int
    kind: str
    summary: str
    route: str | None
    method: str | None
    path: str | None
    status: int | None
    failure: str | None
    content_type: str | None
    streamed: bool
    latency_ms: float | None
    request_bytes: int | None
    response_bytes: int | None
    model: object
    usage: dict[str, object] | None
    unmarked: bool
    tags: list[str]
    asked: str = Field(description="The last thing the request says, at most 80 characters.")
    answered: str = Field(description="The beginning of the answer, at most 80 characters.")
    unused: bool | None = Field(description="Of this take; null if the cassette is not in memory.")


class TitlesQuery(InteractionQuery):
    text: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="Only with this text in request, answer or title.",
    )
    show: Show | None = Field(None, description="Only these; `unused` refers to this take.")
    order: Order | None = Field(None, description="By index if null.")


class TitlePage(ResponseModel):
    titles: list[InteractionTitle]
    total: int | None = Field(description="Null where only reading the cassette would tell.")
    found: list[int] | None = Field(
        description="The indexes of all that were found, in their order, on the first page of a "
        "search, a filter or an order."
    )
    unsearched: int = Field(
        description="Interactions of which a search read only the titles: the texts of a cassette are "
        "kept up to 64 MiB."
    )
    next: int | None = Field(description="`after` for the next page; null on the last.")


class TurnQuery(RequestModel):
    conversation: int | None = Field(
        None, ge=0, le=MAX_INDEX, description="Only this conversation."
    )
    after: int | None = Field(
        None, ge=0, le=MAX_INDEX, description="The turn's number after which the page begins."
    )
    limit: Limit = 100
    index: bool = Field(False, description="All turns at once, without what is new in them.")


class NewPart(ResponseModel):
    """A part of a message that came up first in a turn."""

    role: str
    kind: Literal["text", "thinking", "call", "result", "attachment"]
    name: str = Field(description="Of a tool.")
    characters: int
    head: str = Field(description="At most 200 characters.")


class KeptPrefix(ResponseModel):
    """How much of the turn before a prompt begins with, as a service's cache sees it."""

    kept: int = Field(description="Messages.")
    of: int = Field(description="Messages of the turn before; 0 for a first turn.")
    breaks_at: str | None = Field(
        description="`model`, `tools`, `system` or `message N`; null if all of it is repeated."
    )


class LargeResult(ResponseModel):
    interaction: int
    conversation: int
    name: str
    characters: int
    head: str


class Turn(ResponseModel):
    number: int
    interaction: int
    conversation: int
    provider: str
    endpoint: str
    model: str | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = Field(description="Null where the service does not tell.")
    usd: float | None = Field(description="At list prices; null for a model that has none.")
    latency_ms: float | None
    at: str | None = Field(description="When it was answered, ISO 8601, UTC.")
    tools: list[str] = Field(description="The tools that its answer calls.")
    messages: int = Field(description="Of the prompt.")
    new: list[NewPart]
    prefix: KeptPrefix
    largest_results: list[LargeResult]


class TurnSums(ResponseModel):
    turns: int
    conversations: int
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    cached_tokens: int
    usd: float | None
    unpriced: list[str] = Field(description="Models without a price, which `usd` leaves out.")


class TurnPage(ResponseModel):
    """Turns in the order of the cassette; sums and largest tool results are those of all of it."""

    turns: list[Turn]
    sums: TurnSums
    largest_results: list[LargeResult]
    left_out: list[dict[str, object]]
    next: int | None


class CompareCassettesQuery(RequestModel):
    other: Name | None = Field(
        None, description="The cassette to compare with; the same one if null."
    )
    headers: bool = Field(False, description="Compare response headers too.")


class CompareQuery(CompareCassettesQuery):
    index: int | None = Field(
        None, ge=0, le=MAX_INDEX, description="Compare only this interaction with the other's."
    )
    other_index: int | None = Field(
        None, ge=0, le=MAX_INDEX, description="The other's interaction; the same index if null."
    )


class DifferingPair(ResponseModel):
    """Two recordings of one call; the sides of a difference are `first` and `second`."""

    first: int
    second: int
    summary: str
    differences: list[dict[str, object]] = Field(
        description="At most 20. Each has `path`, `steps`, `recorded_steps` in the first recording "
        "where that is another place, and `first` and `second` where there is a value."
    )
    more: bool


class NamedInteraction(ResponseModel):
    index: int
    summary: str


class ComparedRow(ResponseModel):
    first: int | None
    second: int | None
    state: Literal["equal", "alike", "different", "only_first", "only_second"]


class ComparisonCounts(ResponseModel):
    """How many there are, also beyond those that are listed."""

    different: int
    only_first: int
    only_second: int


class CassetteComparison(ResponseModel):
    """Two cassettes, recording by recording, aligned by request."""

    names: list[str]
    equal: int
    equal_but_for_ids_and_times: int
    counts: ComparisonCounts
    different: list[DifferingPair] = Field(description="At most 1,000.")
    only_first: list[NamedInteraction] = Field(description="At most 1,000.")
    only_second: list[NamedInteraction] = Field(description="At most 1,000.")
    rows: list[ComparedRow] = Field(description="At most 10,000, in the order of the first.")
    rows_left_out: int


class RecordingUnderWay(ResponseModel):
    """A live call that is asked or recorded now."""

    id: str
    cassette: str
    route: str
    method: Text
    path: Text
    elapsed_ms: float
    state: Literal["asking", "receiving", "storing", "durable", "passed_on", "failed"] = Field(
        description="`durable`: it is recorded; `passed_on`: its answer was not to be recorded."
    )
    status: int | None
    bytes: int
    chunks: int
    index: int | None = Field(description="Of the recording, once it is durable.")
    message: Text | None = Field(description="Why it failed, or was not recorded.")


class RecordingsUnderWay(ResponseModel):
    recordings: list[RecordingUnderWay]


class RecordingEvent(RecordingUnderWay):
    """The data of an event: how far a recording is, and what came since the event before."""

    new_chunks: list[list[float]] = Field(
        description="Of each chunk: milliseconds since the request was sent, and bytes."
    )
    text: str | None = Field(
        description="What the answer says so far beyond the text of the events before, redacted; "
        "the whole text if `reset`; null for nothing new."
    )
    reset: bool
    cut: bool = Field(description="Whether it has grown beyond the first MiB, which is shown.")


class LiveReadiness(ResponseModel):
    """Whether an interaction can be asked again, and what that would cost."""

    possible: bool
    reason: str | None = Field(description="Why not.")
    method: Text
    route: str
    path: Text
    credential: str | None = Field(
        description="The environment variable whose key is sent, or AWS credentials for a signature."
    )
    usd: float | None = Field(description="The price of the recorded call, if it is known.")
    prompt_tokens: int | None
    completion_tokens: int | None


class AnswerSide(ResponseModel):
    response: ReadResponse
    answers: list[ReadAnswer]
    timeline: Timeline | None
    usage: dict[str, object] | None
    latency_ms: float


class DriftedPlace(ResponseModel):
    level: Literal["error", "warning", "info"]
    path: str
    recorded: str
    live: str


class LiveComparison(DifferingPair):
    """The recorded answer and the live one; `first` of a difference is the recorded side."""

    recorded: AnswerSide
    live: AnswerSide
    state: Literal["equal", "alike", "different"]
    drift: list[DriftedPlace] = Field(description="Fields whose form differs.")
