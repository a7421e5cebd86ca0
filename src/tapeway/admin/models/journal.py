"""Queries, bodies and responses of the journal; the OpenAPI document describes them."""

from collections.abc import Mapping

from pydantic import Field

from tapeway.admin.models.schema import (
    Limit,
    Name,
    NearRecording,
    RequestModel,
    ResponseModel,
    SlotName,
    Text,
)
from tapeway.core.model.control import Outcome

_GIST = "Tell of each request what it asked and what came back; recordings are read for it."


class JournalQuery(RequestModel):
    outcome: Outcome | None = None
    cassette: Name | None = None
    route: str | None = None
    text: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="Only requests that say this, in body or answer; a call searches a part.",
    )
    negate: bool = Field(False, description="Only requests that do not say the text.")
    slot: SlotName | None = Field(None, description="Only requests that came through this slot.")
    take: int | None = Field(None, description="Only requests of this take of a slot.")
    since: int | None = Field(
        None, description="Only requests of this take of a slot and of later ones."
    )
    after: str | None = Field(
        None, description="The id after which the page begins: `next` of the page before."
    )
    limit: Limit = 100
    gist: bool = Field(False, description=_GIST)


class EventsQuery(RequestModel):
    gist: bool = Field(False, description=_GIST)
    after: str | None = Field(
        None,
        description="Begin with the entries after this id; the `Last-Event-ID` header does the same.",
    )


class Acceptance(RequestModel):
    rule: dict[str, object] | None = Field(
        None, description="Keys and values of `[rules]`; the suggested rule if null."
    )


class JournalEntry(ResponseModel):
    """One proxied request, without its credentials."""

    id: str
    at: str = Field(description="When it arrived, ISO 8601, UTC.")
    cassette: Text
    route: str
    method: Text
    path: Text
    outcome: Outcome
    status: int
    interaction: int | None = Field(
        description="The index of the recording; null if there is none."
    )
    base: str = Field(
        "",
        exclude_if=lambda name: not name,
        description="The base of the cassette that the recording is in, if it is not in the cassette "
        "itself.",
    )
    duration_ms: float
    match_key: str | None
    message: Text | None = Field(
        description="The text of a miss or an error, as the client got it, or a note on the answer."
    )
    nearest: list[NearRecording] = Field(
        description="For a miss: the most similar recordings, the nearest first."
    )
    suggestion: Text | None = Field(
        description="For a miss: the rule for `[rules]` that would make the nearest recording match."
    )
    record_command: Text | None = Field(
        None, description="For a miss: the command that records the request."
    )
    details: list[Text] = Field(
        default=[],
        exclude_if=lambda lines: not lines,
        description="For a miss: in lines for people, what the message leaves out.",
    )
    attempt: int | None = Field(
        description="The number of the try within its call, if the SDK sends it."
    )
    faulted: str | None = Field(
        None, description="The name of the fault that was laid over the recorded answer."
    )
    slot: str | None = Field(description="The slot it came through, if any.")
    take: int | None = Field(description="The take of that slot.")
    client_address: str = Field(description="The IP address of the client.")
    request_id: str = Field(
        description="The client's `X-Request-Id`, or else the id of this entry; secrets are replaced."
    )
    trace_id: str | None = Field(description="The trace of the client's `traceparent`.")
    asked: Text | None = Field(
        None, description="With `gist`: the last thing the request says, at most 80 characters."
    )
    answered: Text | None = Field(
        None,
        description="With `gist`: the beginning of the answer, at most 80 characters; of a miss the first difference to the nearest recording, or why none was compared.",
    )
    model: Text | None = Field(None, description="With `gist`: the model that was asked.")
    tokens: int | None = Field(None, description="With `gist`: the tokens of the call in all.")
    first_byte_ms: float | None = Field(
        None,
        description="With `gist`: when the answer began, after the request; of a replay as recorded.",
    )
    recorded_ms: float | None = Field(
        None, description="With `gist`: how long the call took that is replayed."
    )


class JournalPage(ResponseModel):
    """Newest first."""

    entries: list[JournalEntry]
    next: str | None = Field(description="`after` for the next page; null on the last.")
    searched: int | None = Field(
        None, description="With `text`: how many entries this call has looked at."
    )
    left: int | None = Field(None, description="With `text`: how many older ones there are.")


class Cleared(ResponseModel):
    removed: int


class Accepted(ResponseModel):
    cassette: str
    rules: Mapping[str, object] = Field(description="All rules in force for the cassette now.")
    suggestion: str = Field(description="What was added, in the form of `[rules]`.")
