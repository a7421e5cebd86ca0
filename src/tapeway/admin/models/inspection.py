"""Queries and responses of the routes that show requests and recordings to people."""

from typing import Literal

from pydantic import Field

from tapeway.admin.models.interactions import InteractionQuery
from tapeway.admin.models.journal import JournalEntry
from tapeway.admin.models.schema import (
    FIELDS_BY_DOCSTRINGS,
    MAX_INDEX,
    Limit,
    Name,
    RequestModel,
    ResponseModel,
    Text,
)
from tapeway.inspection.missed import ComparedRequest, NearestCompared, PartVerdict, Preview
from tapeway.inspection.titles import Order, Show

FoundBy = Literal["key", "rules", "alias", "identifiers", "live"]


class AnsweringRecording(ResponseModel):
    cassette: str
    index: int
    by: FoundBy
    reason: str


class WholeEntry(ResponseModel):
    """A request, with the reason of the hit or of the miss, and the recordings that would answer."""

    model_config = FIELDS_BY_DOCSTRINGS

    entry: JournalEntry
    request: ComparedRequest | None
    """Of a miss."""
    nearest: NearestCompared | None
    """Of a miss, if there is one."""
    verdicts: list[PartVerdict]
    """Of a miss: each of its parts."""
    suggestion: str | None
    unsafe: str | None
    """Why the suggestion is refused by now: recordings that differ would be equal."""
    preview: Preview | None
    """What would answer if the suggestion were accepted; nothing is changed."""
    recording: AnsweringRecording | None
    """The recording that answered or was made, and how it was found."""
    previous: str | None
    """The id of the entry before it of the same cassette, if that is there."""
    next: str | None
    """The id of the entry after it of the same cassette."""


class TitlesQuery(InteractionQuery):
    text: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="Only with this text in request, answer or title.",
    )
    show: Show | None = Field(None, description="Only these; `unused` refers to this take.")
    order: Order | None = Field(None, description="By index if null.")


class TurnQuery(RequestModel):
    conversation: int | None = Field(
        None, ge=0, le=MAX_INDEX, description="Only this conversation."
    )
    after: int | None = Field(
        None, ge=0, le=MAX_INDEX, description="The turn's number after which the page begins."
    )
    limit: Limit = 100
    index: bool = Field(False, description="All turns at once, without what is new in them.")


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
    changes: bool = Field(description="Whether it may change something at the service.")
    usd: float | None = Field(description="The price of the recorded call, if it is known.")
    prompt_tokens: int | None
    completion_tokens: int | None


class RecordedMiss(ResponseModel):
    """The answer to a request that had missed."""

    cassette: str
    index: int | None = Field(description="Of the recording; null if the answer was not stored.")
    status: int | None = Field(description="Of the live answer; null if a recording was there.")
    note: Text | None = Field(description="Why it was not stored, or is in doubt.")


class CassetteRule(ResponseModel):
    """A rule in force for a cassette."""

    rule: Text = Field(description="As a line for `[rules]`.")
    of_settings: bool = Field(description="Whether the settings have it, which add it again.")


class CassetteRules(ResponseModel):
    rules: list[CassetteRule]


class RuleQuery(RequestModel):
    rule: str = Field(min_length=1, max_length=4000, description="A line for `[rules]`.")
