"""Presigned requests: a signature in the query or in a form, with what it was made of.

A client that signs by itself signs anew in each run, with other dates. So the parts of a signature
do not belong to the match key; that there is one does.
"""

from typing import NamedTuple

from tapeway.core.json_text import Json

SIGNATURE, SIGNED = "Signature", "<presigned-request>"
"""The name and the value of a credential field that stands for any signature."""


class _Kind(NamedTuple):
    """The names of a kind of signature, in lower case."""

    marks: frozenset[str]
    """All of them are there."""
    parts: frozenset[str]
    """All that are parts of the signature."""


def _version_4(prefix: str) -> _Kind:
    names = [
        "algorithm",
        "credential",
        "date",
        "expires",
        "signature",
        "signedheaders",
        "security-token",
    ]
    parts = frozenset([f"{prefix}-{name}" for name in names])
    marks = frozenset({f"{prefix}-signature", f"{prefix}-credential", f"{prefix}-date"})
    # The policy of a form has the time until which it may be sent.
    return _Kind(marks, parts | {"policy"})


def _older_kind(*marks: str) -> _Kind:
    required = frozenset({*marks, "signature"})
    return _Kind(required, required | {"expires", "policy"})


_AZURE = frozenset(
    [
        "sv",
        "ss",
        "srt",
        "sr",
        "sp",
        "st",
        "se",
        "sip",
        "spr",
        "sig",
        "si",
        "skoid",
        "sktid",
        "skt",
        "ske",
        "sks",
        "skv",
        "saoid",
        "suoid",
        "scid",
        "ses",
        "sdd",
    ]
)
_KINDS = (
    _version_4("x-amz"),
    _version_4("x-goog"),
    _older_kind("awsaccesskeyid"),
    _older_kind("googleaccessid"),
    _older_kind("ossaccesskeyid"),
    _older_kind("key-pair-id"),
    _Kind(frozenset({"sig", "sv", "se"}), _AZURE),
    # A stored access policy has the times.
    _Kind(frozenset({"sig", "sv", "si"}), _AZURE),
    # Azure Logic Apps.
    _Kind(frozenset({"sig", "sv", "sp"}), _AZURE),
)


def without_signature(values: dict[str, Json]) -> dict[str, Json]:
    """The parameters of a query or form; in place of a signature's parts one field says there is one."""
    present = {name.lower() for name in values}
    kind = next((candidate for candidate in _KINDS if candidate.marks <= present), None)
    if kind is None:
        return values
    kept: dict[str, Json] = {
        name: value for name, value in values.items() if name.lower() not in kind.parts
    }
    return {SIGNATURE: SIGNED} | kept
