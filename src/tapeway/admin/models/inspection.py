"""Responses of the routes that show requests and recordings to people; OpenAPI describes them."""

from typing import Literal

from pydantic import Field

from tapeway.admin.models.journal import JournalEntry
from tapeway.admin.models.schema import ResponseModel

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
    """A request, why it hit, or why it missed and what would answer it."""

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
