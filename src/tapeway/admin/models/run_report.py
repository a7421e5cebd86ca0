"""Bodies and responses of the report of a whole test run; the OpenAPI document describes them."""

from typing import Literal

from pydantic import Field

from tapeway.admin.models.control import ReportedCassette
from tapeway.admin.models.schema import Name, RequestModel, ResponseModel

RunForm = Literal["junit", "markdown", "text", "html"]


class RunReportQuery(RequestModel):
    format: RunForm = "text"
    brief: bool = Field(False, description="With `html`: a smaller page, as every run leaves.")


class SourceLine(RequestModel):
    file: str
    line: int = Field(description="Counted from 1.")


class RunReport(RequestModel):
    cassettes: list[ReportedCassette] = Field(description="What the ejects of a run answered.")


class EndedRun(RunReport):
    places: dict[str, SourceLine] = Field(
        default={}, description="By cassette: its test's file, from the root of the repository."
    )
    missing: dict[Name, list[str]] = Field(
        default={}, description="Cassettes that do not exist, with the match keys of their misses."
    )
    unclaimed: list[Name] = Field(default=[], description="Cassettes that no test names.")


class RunNotes(ResponseModel):
    """What a test runner prints at its end, in lines for people."""

    causes: list[str] = Field(
        description="Why requests missed, where several missed for one reason."
    )
    gains: list[str] = Field(description="What replays saved, and how many secrets were replaced.")
    notices: list[str] = Field(description="Recordings that say when they were made, and the like.")
    unreached: list[str] = Field(description="Replayed sessions whose tail no client reached.")
    failed: list[str] = Field(
        description="The errors that calls got from tapeway itself, such as `upstream_unreachable`."
    )
    unrecorded: list[str] = Field(description="Live answers that were not stored.")
    annotations: list[str] = Field(description="Workflow commands for the output of a build.")
    renamed: dict[str, str] = Field(
        description="For missing cassettes: the unclaimed cassette that holds what was missed."
    )
