"""A recorded failure: AgentTape's `error`, which its tools raise, and what had come until then."""

from collections.abc import Mapping

from tapeway.core.json_text import Json
from tapeway.core.model.messages import MESSAGES, Failure, FailureKind
from tapeway.formats.fields import Fields

NAMES = ("type", "module", "message", "failure")
"""All fields of the error; `failure` is what tells ours from another tool's."""

PARTIAL = "partial"
"""The field beside the error with what had come. AgentTape reads over it."""

_MODULE = "httpx"
_TYPES: Mapping[FailureKind, str] = {
    "cut": "RemoteProtocolError",
    "reset": "ReadError",
    "timeout": "ReadTimeout",
}
_KINDS: Mapping[str, FailureKind] = {kind: kind for kind in _TYPES}


def encode(failure: Failure) -> dict[str, Json]:
    """The error. In AgentTape's terms it is what httpx raises for such an upstream."""
    return {
        "type": _TYPES[failure.kind],
        "module": _MODULE,
        "message": failure.message,
        "failure": failure.kind,
    }


def decode(fields: Fields) -> Failure:
    """The failure an error says. Raises FormatFault."""
    fields.only(NAMES)
    said = fields.text("failure")
    if said not in _KINDS:
        raise fields.fault("failure", f"must be one of {', '.join(_KINDS)}, not '{said}'")
    kind = _KINDS[said]
    return Failure(kind, fields.text("message") or MESSAGES[kind])


def is_ours(error: Json) -> bool:
    """Whether an error is a failure that can be replayed, and not another tool's exception."""
    return isinstance(error, dict) and "failure" in error
