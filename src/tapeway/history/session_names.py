"""The cassette of a session: its name tells the session's id, whatever that is made of."""

import re

from tapeway.core.http.routing import valid_cassette_name
from tapeway.errors import RequestError

FOLDER = "history"

# Small letters alone: on some file systems `A.json` and `a.json` are the same file.
_PLAIN = re.compile(r"[a-z0-9][a-z0-9.-]{0,127}")
_ESCAPED = "escaped"
_ESCAPE = re.compile(r"[^a-z0-9.-]")
_CODE = re.compile(r"_([0-9a-f]{2})")
# A segment begins with a letter of its own, so that the rest may begin with anything.
_MARK = "s"
_SEGMENT = 127
_MOST_SEGMENTS = 6


def name_of(session_id: str) -> str:
    """The cassette of a session. Raises RequestError for an id that is empty or too long."""
    if not session_id:
        raise RequestError("a session's id is a text that is not empty")
    if _PLAIN.fullmatch(session_id):
        return f"{FOLDER}/{session_id}"
    try:
        octets = session_id.encode().decode("latin-1")
    except UnicodeEncodeError as exc:
        raise RequestError(f"a session's id holds half a character: {session_id!r}") from exc
    escaped = _ESCAPE.sub(lambda found: f"_{ord(found[0]):02x}", octets)
    parts = [escaped[at : at + _SEGMENT] for at in range(0, len(escaped), _SEGMENT)]
    if len(parts) > _MOST_SEGMENTS:
        raise RequestError(
            f"a session's id of {len(session_id)} characters is too long: what is neither a small "
            f"letter, a digit, '.' nor '-' counts threefold for each of its octets, and "
            f"{_MOST_SEGMENTS * _SEGMENT} are the most"
        )
    return "/".join([FOLDER, _ESCAPED, *[_MARK + part for part in parts]])


def session_of(name: str) -> str | None:
    """The session whose cassette has this name, None for any other cassette."""
    folder, *segments = name.split("/")
    if folder != FOLDER or not segments:
        return None
    if len(segments) == 1:
        return segments[0] if _PLAIN.fullmatch(segments[0]) else None
    if segments[0] != _ESCAPED:
        return None
    escaped = "".join([segment.removeprefix(_MARK) for segment in segments[1:]])
    octets = _CODE.sub(lambda found: chr(int(found[1], 16)), escaped)
    try:
        session = octets.encode("latin-1").decode()
        return session if valid_cassette_name(name) and name_of(session) == name else None
    except (UnicodeError, RequestError):
        return None
