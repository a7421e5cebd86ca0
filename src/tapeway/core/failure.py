"""What of an upstream's trouble can be recorded, and replayed as what it was."""

from collections.abc import Mapping

from tapeway.core.model import Failure, FailureKind

_KINDS: Mapping[str, FailureKind] = {
    "upstream_truncated": "cut",
    "upstream_reset": "reset",
    "upstream_timeout": "timeout",
}
MESSAGES: Mapping[FailureKind, str] = {
    "cut": "the upstream broke off in the middle of its answer",
    "reset": "the upstream broke the connection off before it answered",
    "timeout": "the upstream did not answer in time",
}
"""What a recording says; the error of the live call names the upstream and what to do."""


def failure(code: str, *, begun: bool) -> Failure | None:
    """The failure behind an error's code, or None where it is none of the upstream's answer.

    `begun` says that a head had come: what is reset after that is cut.
    """
    kind = _KINDS.get(code)
    if kind is None:
        return None
    if begun and kind == "reset":
        kind = "cut"
    return Failure(kind, MESSAGES[kind])
