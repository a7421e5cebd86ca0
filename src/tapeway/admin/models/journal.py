"""What admin calls carry and are answered with; the OpenAPI document describes these models."""

from collections.abc import Mapping

from pydantic import Field

from tapeway.admin.models.schema import Limit, Name, Said, Sent
from tapeway.core.model.control import Outcome


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
