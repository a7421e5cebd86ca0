"""Responses of the remote tapeway as errors of the store."""

from tapeway.core.json_text import Json, NotJson, parse
from tapeway.errors import (
    CassetteCorrupt,
    CassetteEdited,
    CassetteLocked,
    RecordingEdited,
    StoreAway,
    StoreError,
    StoreFull,
    StorePoisoned,
)

_ERRORS_BY_CODE: dict[str, type[StoreError]] = {
    "cassette_corrupt": CassetteCorrupt,
    "cassette_edited": CassetteEdited,
    "cassette_locked": CassetteLocked,
    "precondition_failed": CassetteEdited,
    "recording_edited": RecordingEdited,
}


class RemoteRefused(StoreError):
    """The remote tapeway refused a request; `remote_code` is the code of its error."""

    def __init__(self, message: str, remote_code: str) -> None:
        super().__init__(message)
        self.remote_code = remote_code


class NotAllowed(StoreError):
    """The remote tapeway does not take the token."""


def refusal(shown: str, status: int, text: bytes, token_variable: str) -> StoreError:
    """The error for a response that is no success; the token is set in `token_variable`."""
    code, message = _code_and_message(text)
    if status == 401:
        return NotAllowed(
            f"{shown} does not take this token: set {token_variable} to the one of its --admin-token"
        )
    if not code:
        return StoreError(
            f"{shown} answered {status} and not as a tapeway does: give the address of an admin "
            "listener, and nothing in between that answers for it"
        )
    message = f"{shown}: {message}"
    if status == 403:
        return NotAllowed(message)
    if code in _ERRORS_BY_CODE:
        return _ERRORS_BY_CODE[code](message)
    if status == 507:
        return StoreFull(message)
    if status == 503 and code == "recording_failed":
        return StorePoisoned(message)
    if status in (429, 503):
        return StoreAway(message)
    return RemoteRefused(message, code)


def value_of(shown: str, text: bytes) -> dict[str, Json]:
    """The object in a successful response. Raises StoreError for anything else."""
    try:
        value = parse(text)
    except NotJson:
        value = None
    if not isinstance(value, dict):
        raise unexpected(shown)
    return value


def unexpected(shown: str) -> StoreError:
    """The error for a successful response with other content than expected."""
    return StoreError(
        f"{shown} answered what no tapeway of this version answers: see what runs there, and that "
        "nothing in between changes it"
    )


def _code_and_message(text: bytes) -> tuple[str, str]:
    try:
        value = parse(text)
    except NotJson:
        return "", ""
    match value:
        case {"error": {"code": str(code), "message": str(message)}, "tapeway": dict()}:
            return code, message
        case _:
            return "", ""
