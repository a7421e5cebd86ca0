"""Which of equal requests a recorded answer is for, by their header fields.

A service that chooses among several answers names the request fields it looks at in `Vary` (RFC 9110,
section 12.5.5). A part of a file answers a request for that part (15.3.7), and "not modified" answers
a request that states a condition (15.4.5).
"""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from tapeway.core.http.headers import find_header, is_stored
from tapeway.core.matching.placeholders import fits, has_placeholder
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import CONDITIONAL_STATUSES, Headers, Request
from tapeway.core.redaction.credentials import is_credential_header

ANY_NAME = "*"
"""In a rule, in place of the names of fields: whatever `Vary` names."""

HANDSHAKE = "sec-websocket-"
"""Fields of a WebSocket handshake belong to one connection, and may hold a key."""

_PARTIAL = frozenset({206, 416})
_CONDITIONS = frozenset(
    {
        *(b"if-match", b"if-modified-since", b"if-none-match"),
        *(b"if-range", b"if-unmodified-since"),
    }
)
_UNDECIDED = frozenset(
    {"*", "accept-encoding", "cookie", "origin", "referer", "user-agent", "x-origin"}
)
"""Names in `Vary` that decide nothing: a coding is taken off, and a program's name is not its request."""

_WITHOUT_CASE = frozenset(
    {"accept", "accept-charset", "accept-language", "content-language", "content-type"}
)
"""Fields with media types, languages and charsets."""
_SIGN = re.compile(rb"[ \t]*([,;=])[ \t]*")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]{1,64}")
_MOST_NAMES = 32

IsOf = Callable[[str, str], bool]
"""Whether a placeholder stands for a text."""


def varied_names(response: Headers) -> tuple[str, ...]:
    """The request fields, in lower case, on which an answer with these fields depends."""
    listed = b",".join([value for name, value in response if name.lower() == b"vary"])
    if not listed:
        return ()
    names = dict.fromkeys([part.strip().lower() for part in listed.decode("latin-1").split(",")])
    return tuple([name for name in names if _decides(name)][:_MOST_NAMES])


def told_apart_by(
    recorded: Request, asked: Headers, ignored: tuple[str, ...], is_of: IsOf | None = None
) -> list[str]:
    """The fields on which a recorded answer depends, and whose value in a request differs.

    `ignored` are names that do not decide.
    """
    if not recorded.varied or ignored == (ANY_NAME,):
        return []
    return [
        name
        for name in recorded.varied
        if name not in ignored and not _same_header(name, recorded.headers, asked, is_of)
    ]


def known_to_differ(recorded: Request, asked: Request, ignored: tuple[str, ...]) -> list[str]:
    """`told_apart_by` for a stored request, without fields that may have been sent unstored."""
    return [
        name
        for name in told_apart_by(recorded, asked.headers, ignored)
        if _is_stored(name, asked) or _value(name, asked.headers) is not None
    ]


def varied_values(request: Request, ignored: tuple[str, ...]) -> bytes:
    """One text of the recorded request's values in the fields that its answer names in Vary."""
    if not request.varied or ignored == (ANY_NAME,):
        return b""
    names = [name for name in sorted(request.varied) if name not in ignored]
    return b"\n".join(
        [b"%b: %b" % (name.encode(), _value(name, request.headers) or b"") for name in names]
    )


def is_for(
    recorded: Interaction, asked: Headers, ignored: tuple[str, ...], is_of: IsOf | None = None
) -> bool:
    """Whether a recorded answer fits an equal request with these fields."""
    request, status = recorded.request, recorded.response.head.status
    if status in CONDITIONAL_STATUSES and not _states_the_same(request.headers, asked, status):
        return False
    return not told_apart_by(request, asked, ignored, is_of)


def why_not(
    recorded: Interaction, asked: Headers, ignored: tuple[str, ...], is_of: IsOf | None = None
) -> str | None:
    """Why a recorded answer is not for an equal request with these fields, None where it is."""
    status = recorded.response.head.status
    if names := told_apart_by(recorded.request, asked, ignored, is_of):
        return f"recorded with another {' and '.join(names)}, which Vary names"
    if is_for(recorded, asked, ignored, is_of):
        return None
    if status in _PARTIAL:
        return f"a {status} to a request with another Range"
    return f"a {status} to a request with a condition such as If-None-Match"


def has_conditions(recorded: Interaction) -> bool:
    """Whether a recorded answer fits only some of the equal requests."""
    request, status = recorded.request, recorded.response.head.status
    if status in CONDITIONAL_STATUSES:
        return bool(request.varied) or not _states_the_same(request.headers, (), status)
    return bool(request.varied)


def are_told_apart(recorded: Interaction, other: Interaction, ignored: tuple[str, ...]) -> bool:
    """Whether the answers to two recorded requests that are equal depend on fields that differ."""
    one, two = recorded.request, other.request
    if not (one.varied or two.varied) or ignored == (ANY_NAME,):
        return False
    names = {*one.varied, *two.varied} - {*ignored}
    return any(
        _is_stored(name, one)
        and _is_stored(name, two)
        and not _same_header(name, one.headers, two.headers)
        for name in names
    )


def of_one_request(
    recordings: Iterable[Interaction], ignored: tuple[str, ...]
) -> list[list[Interaction]]:
    """Recordings with one key in groups that headers do not tell apart."""
    groups: list[list[Interaction]] = []
    for recording in recordings:
        own = (group for group in groups if not are_told_apart(group[0], recording, ignored))
        if (group := next(own, None)) is None:
            groups.append([recording])
        else:
            group.append(recording)
    return groups


def requests_differ(
    one: Headers, other: Headers, response: Headers, ignored: tuple[str, ...]
) -> bool:
    """Whether two requests differ in a field that decides about the recorded answer."""
    names = varied_names(response)
    if not names or ignored == (ANY_NAME,):
        return False
    return any(name not in ignored and not _same_header(name, one, other) for name in names)


def _decides(name: str) -> bool:
    if name in _UNDECIDED or name.startswith(HANDSHAKE) or _NAME.fullmatch(name) is None:
        return False
    return not is_credential_header(name.encode())


def _is_stored(name: str, request: Request) -> bool:
    return name in request.varied or is_stored(name.encode())


def _states_the_same(recorded: Headers, asked: Headers, status: int) -> bool:
    if status in _PARTIAL:
        part = find_header(recorded, b"range")
        return part is None or part == find_header(asked, b"range")
    return not _has_condition(recorded) or _has_condition(asked)


def _has_condition(headers: Headers) -> bool:
    return any(name.lower() in _CONDITIONS for name, _ in headers)


def _same_header(name: str, recorded: Headers, asked: Headers, is_of: IsOf | None = None) -> bool:
    one, other = _value(name, recorded), _value(name, asked)
    if one == other:
        return True
    if one is None or other is None or is_of is None:
        return False
    text = one.decode("latin-1")
    return has_placeholder(text) and fits(text, other.decode("latin-1"), is_of)


@lru_cache(maxsize=4096)
def _value(name: str, headers: Headers) -> bytes | None:
    """The normalised value of a field, None if absent."""
    octets = name.encode()
    values = [value.strip() for field, value in headers if field.lower() == octets]
    if not values:
        return None
    text = _SIGN.sub(rb"\1", b",".join(values))
    # A placeholder says something by its letters.
    return text.lower() if name in _WITHOUT_CASE and b"REDACTED." not in text else text
