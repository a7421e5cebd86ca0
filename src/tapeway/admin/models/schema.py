"""What admin calls carry and are answered with; the OpenAPI document describes these models.

Text that may hold what no JSON can.
"""

from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from tapeway.core.http.routing import check_cassette_name

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


def moment(seconds: float) -> str:
    """Seconds since the epoch as ISO 8601 in UTC, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
