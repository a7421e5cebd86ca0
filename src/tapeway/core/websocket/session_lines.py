"""Writes and reads a session as lines of JSON: a line for each message, and for the close.

{"client":{"type":"response.create"}}       JSON, byte for byte
{"service_text":"hello"}                    text without JSON
{"client_binary":"AAEC"}                    bytes, in base64
{"service_binary_json":{"setupComplete":{}}}    JSON in a binary message
{"close":{"code":1000,"reason":"","by":"client"}}
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping

import orjson

from tapeway.core.json_text import Json, dump, json_object
from tapeway.core.websocket.messages import Close, WebSocketMessage
from tapeway.core.websocket.sessions import SessionMessage, SessionRecording

_CLIENT, _SERVICE, _CLOSE = "client", "service", "close"
_TEXT, _BINARY, _BINARY_JSON = "_text", "_binary", "_binary_json"

# CR or LF would end the line, and a reader would strip blanks around the value.
_WRITTEN_ON_A_LINE = re.compile(rb"[{\[][^\r\n]*[}\]]\Z")
# An object with this name in a line of a cassette refers to a file beside the cassette.
_REFERENCE = b"__agenttape_asset__"


def session_line(message: WebSocketMessage, *, by_client: bool) -> bytes:
    """The line of a message."""
    side = _CLIENT if by_client else _SERVICE
    data = message.data
    if _WRITTEN_ON_A_LINE.match(data) and _REFERENCE not in data and _is_json(data):
        name = side + (_BINARY_JSON if message.binary else "")
        return b'{"%b":%b}\n' % (name.encode(), data)
    if message.binary:
        return dump({side + _BINARY: base64.b64encode(data).decode()}) + b"\n"
    return dump({side + _TEXT: data.decode()}) + b"\n"


def close_line(close: Close) -> bytes:
    """The last line of a session: the close code and reason, and the side that closed."""
    side = _CLIENT if close.by_client else _SERVICE
    value: dict[str, Json] = {"code": close.code, "reason": close.reason, "by": side}
    return dump({_CLOSE: value}) + b"\n"


def read_session(lines: Iterable[tuple[float, bytes]]) -> SessionRecording:
    """Read a session from pairs of time (in milliseconds) and line.

    Skip unreadable lines, such as lines of an edited file.
    """
    messages: list[SessionMessage] = []
    close: Close | None = None
    for at_ms, line in lines:
        name, value, written = _member(line)
        if name == _CLOSE and isinstance(value, dict):
            close = _close_of(value)
        elif (message := _message(name, value, written)) is not None:
            messages.append(SessionMessage(message, name.startswith(_CLIENT), at_ms))
    return SessionRecording(tuple(messages), close)


def _member(line: bytes) -> tuple[str, Json, bytes]:
    """Name, value and text of a line's only member; empty for a line of different form."""
    text = line.strip()
    members = json_object(text)
    if members is None or len(members) != 1:
        return "", None, b""
    [(name, value)] = members.items()
    start = b'{"%b":' % name.encode()
    return name, value, text[len(start) : -1] if text.startswith(start) else dump(value)


def _message(name: str, value: Json, written: bytes) -> WebSocketMessage | None:
    side, kind = name, ""
    for suffix in (_BINARY_JSON, _BINARY, _TEXT):
        if name.endswith(suffix):
            side, kind = name.removesuffix(suffix), suffix
            break
    if side not in (_CLIENT, _SERVICE):
        return None
    if kind in ("", _BINARY_JSON):
        return WebSocketMessage(written.strip(), binary=bool(kind))
    if not isinstance(value, str):
        return None
    if kind == _TEXT:
        return WebSocketMessage(value.encode())
    try:
        return WebSocketMessage(base64.b64decode(value, validate=True), binary=True)
    except binascii.Error:
        return None


def _close_of(value: Mapping[str, Json]) -> Close:
    code, reason = value.get("code"), value.get("reason")
    return Close(
        code if isinstance(code, int) else 0,
        reason if isinstance(reason, str) else "",
        value.get("by") == _CLIENT,
    )


def _is_json(data: bytes) -> bool:
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError:
        return False
    return True
