"""Which header fields tell equal requests apart that got different answers.

Nothing names such a field, so this is a guess from several requests: the answer goes with the value
of the field. Fields that clients write anew for each request are no guess.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from tapeway.core.http.headers import HOP_BY_HOP, OWN
from tapeway.core.http.volatile_headers import is_volatile
from tapeway.core.model.request_fields import RequestFields, decides
from tapeway.core.redaction.credentials import is_credential_header

_MOST_VALUE = 200
_MOST_NAMES = 8
_SAY_NOTHING = (
    HOP_BY_HOP
    | OWN
    | frozenset(
        {
            *(
                b"accept-encoding",
                b"accept-language",
                b"baggage",
                b"cache-control",
                b"content-length",
            ),
            *(
                b"cookie",
                b"expect",
                b"host",
                b"idempotency-key",
                b"last-event-id",
                b"mcp-session-id",
            ),
            *(
                b"origin",
                b"pragma",
                b"priority",
                b"referer",
                b"sentry-trace",
                b"user-agent",
                b"via",
            ),
        }
    )
)
_PROGRAMS = (
    b"x-stainless-",
    b"amz-sdk-",
    b"sec-",
    b"if-",
    b"x-forwarded-",
    b"x-datadog-",
    b"x-b3-",
)
_DRAWN = re.compile(
    rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{16,}|[0-9]{6,}|[\w+/=-]{24,}"
    rb"|.*[0-9]{2}:[0-9]{2}.*",
    re.IGNORECASE,
)
"""Ids, numbers and times."""


class AnsweredFields(NamedTuple):
    """One of several equal requests: the fields that may tell it from the others, and the answer."""

    fields: Mapping[bytes, bytes]
    answer: object
    """Equal for equal answers."""


def telling_candidates(fields: RequestFields) -> dict[bytes, bytes]:
    """The fields of a request that may tell it apart from an equal one, by names in lower case."""
    first = fields.first
    telling = [(name, first[name]) for name in _may_tell_of(tuple(first))]
    return {name: value for name, value in telling if len(value) <= _MOST_VALUE}


def telling_names(requests: Sequence[AnsweredFields], known: Iterable[str] = ()) -> tuple[str, ...]:
    """The fields whose values go with the answers of equal requests; none if all answers are equal.

    `known` are names that decide already.
    """
    if len({request.answer for request in requests}) < 2:
        return ()
    names = dict.fromkeys(name for request in requests for name in request.fields)
    decided = {name.encode() for name in known}
    telling = [name for name in names if name not in decided and _goes_with_answers(name, requests)]
    return tuple([name.decode("latin-1") for name in telling[:_MOST_NAMES]])


def match_rule(names: tuple[str, ...]) -> str:
    """The rule that has these headers count."""
    listed = ", ".join(f'"{name}"' for name in names)
    return f"match = [{listed}] below [rules] has {'it' if len(names) == 1 else 'them'} count"


def _goes_with_answers(name: bytes, requests: Sequence[AnsweredFields]) -> bool:
    answers: dict[bytes | None, object] = {}
    for request in requests:
        value = request.fields.get(name)
        if value is not None and _DRAWN.fullmatch(value):
            return False
        if answers.setdefault(value, request.answer) != request.answer:
            return False
    return len(answers) > 1


@lru_cache(maxsize=256)
def _may_tell_of(names: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Those that may tell; remembered together, since a client sends the same fields each time."""
    return tuple(filter(_may_tell, names))


def _may_tell(name: bytes) -> bool:
    if name in _SAY_NOTHING or name.startswith(_PROGRAMS) or is_volatile(name):
        return False
    # Of the fields that decide by their values, all begin with `if-`.
    return not (is_credential_header(name) or decides(name, b""))
