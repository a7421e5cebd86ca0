"""What the models of the admin API share: base classes, constrained types and the error shape."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from tapeway.core.http.routing import NAME_SEGMENT, check_cassette_name, check_slot_name
from tapeway.core.text import escape_surrogates

_SEGMENT = NAME_SEGMENT.pattern
MAX_INDEX = 10**15 - 1
NAME_PATTERN = rf"^{_SEGMENT}(/{_SEGMENT}){{0,7}}$"
Name = Annotated[
    str, AfterValidator(check_cassette_name), Field(json_schema_extra={"pattern": NAME_PATTERN})
]
SLOT_PATTERN = rf"^{_SEGMENT}$"
SlotName = Annotated[
    str, AfterValidator(check_slot_name), Field(json_schema_extra={"pattern": SLOT_PATTERN})
]


def _writable(text: object) -> object:
    return escape_surrogates(text) if isinstance(text, str) else text


Text = Annotated[str, BeforeValidator(_writable)]
"""A text from a client or a service, with escapes for octets outside UTF-8."""
Limit = Annotated[int, Field(ge=1, le=1000, description="The page's maximum number of entries.")]


class RequestModel(BaseModel):
    """A query or a body; unknown fields and wrong types are refused."""

    # Validators are made when they are first used: making all takes a tenth of a start.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class ResponseModel(BaseModel):
    """The body of a response; later versions may add fields."""

    model_config = ConfigDict(frozen=True, defer_build=True)


FIELDS_BY_DOCSTRINGS = ConfigDict(use_attribute_docstrings=True)
"""For a model of dataclasses: the texts below fields describe them, there as here."""


class ChangeResult(ResponseModel):
    """What a change of a cassette answers."""

    left_over: Sequence[str] = Field(
        default=[],
        exclude_if=lambda sentences: not sentences,
        description="Where what was removed or replaced can still be read, and how to end that: a "
        "sentence for each place. Absent where all is gone.",
    )


class Nothing(RequestModel):
    """No fields."""


class NearRecording(ResponseModel):
    """A recording, and the differences between its request and the missed request."""

    index: int
    differences: list[Mapping[str, object]] = Field(
        description="Each has a `path`, and `recorded` and `requested` where there is a value."
    )
    more: int = Field(description="The number of further differences.")
    base: str = Field(
        "",
        exclude_if=lambda name: not name,
        description="The base of the cassette that the recording is in, if it is not in the cassette "
        "itself.",
    )


class Fault(ResponseModel):
    type: str
    code: str
    status: str
    message: str
    param: str | None


class Error(ResponseModel):
    """Any response of 400 or above; `error.code` is stable, `message` says what to do."""

    type: Literal["error"]
    error: Fault
    message: str
    request_id: str
    tapeway: dict[str, object]


def iso_time(seconds: float) -> str:
    """Seconds since the epoch as ISO 8601 in UTC, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
