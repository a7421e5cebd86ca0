"""Log lines on stderr: one event per line, without secrets.

Only tapeway's own messages are logged in full, with known secrets masked. Other libraries repeat
input, API keys included (aiohttp quotes a malformed header line, an exception's text the URL). So of
their messages only the fixed part is logged: what kind of error, and where.
"""

import json
import logging
import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Literal, TextIO
from urllib.parse import quote

from tapeway.errors import TapewayError

LogFormat = Literal["auto", "human", "json"]
Level = Literal["debug", "info", "warning", "error"]
Value = str | int | float | bool | None

OWN = "tapeway"
MASK = "[secret]"
_SHORTEST_SECRET = 4
"""Masking shorter values would mask ordinary words."""

_RECORD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
# Control characters, line separators, marks of text direction, and lone surrogates.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
# A library's message up to the first place where it may quote input.
_FIXED_PART = re.compile(r"[^%({<\[\"'`:=\r\n]*")


def configure(
    log_format: LogFormat,
    level: Level,
    secrets: Iterable[str | bytes] = (),
    stream: TextIO | None = None,
) -> None:
    """Send all log records to one stream, by default standard error.

    Another call replaces the configuration.
    """
    out = sys.stderr if stream is None else stream
    human = log_format == "human" or (log_format == "auto" and out.isatty())
    handler = logging.StreamHandler(out)
    handler.setFormatter((_HumanLine if human else _JsonLine)(Mask(secrets)))
    root = logging.getLogger()
    for old in list(root.handlers):
        if isinstance(old.formatter, _Line):
            root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger(OWN).setLevel(level.upper())
    # It would log whole request lines, `?key=` included.
    logging.getLogger("aiohttp.access").disabled = True
    # logging's own report of a failed write would print the record's arguments.
    logging.raiseExceptions = False
    logging.captureWarnings(True)


class Mask:
    """Replaces known secrets in a text, percent-encoded ones too."""

    def __init__(self, secrets: Iterable[str | bytes]) -> None:
        known: set[str] = set()
        for secret in secrets:
            text = secret if isinstance(secret, str) else secret.decode("utf-8", "replace")
            if len(text) >= _SHORTEST_SECRET:
                known |= {text, quote(text, safe="")}
        longest_first = sorted(known, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if known else None

    def __call__(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub(MASK, text)


class _Line(logging.Formatter):
    def __init__(self, mask: Mask) -> None:
        super().__init__()
        self._mask = mask

    def _message(self, record: logging.LogRecord) -> str:
        if not _is_own(record):
            return _fixed_part(record)
        try:
            return self._mask(record.getMessage())
        except (TypeError, ValueError, KeyError):
            return self._mask(str(record.msg))

    def _fields(self, record: logging.LogRecord) -> dict[str, Value]:
        if not _is_own(record):
            return {}
        return {
            name: value if isinstance(value, int | float | bool | None) else self._mask(str(value))
            for name, value in vars(record).items()
            if name not in _RECORD_FIELDS
        }

    def _trace(self, record: logging.LogRecord) -> str:
        exc = record.exc_info[1] if record.exc_info else None
        return "" if exc is None else self._mask("\n".join(_trace(exc)))


class _JsonLine(_Line):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Value] = {
            "at": _time_of(record).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._message(record),
        }
        line |= {name: value for name, value in self._fields(record).items() if name not in line}
        if trace := self._trace(record):
            line["exception"] = trace
        # ASCII escapes keep U+2028, ESC and lone surrogates from breaking a line or a terminal.
        return json.dumps(line, ensure_ascii=True)


class _HumanLine(_Line):
    def format(self, record: logging.LogRecord) -> str:
        head = f"{_time_of(record):%H:%M:%S} {record.levelname.lower():<7} {self._message(record)}"
        pairs = [f"{name}={value}" for name, value in self._fields(record).items()]
        lines = [" ".join([head, *pairs]), *self._trace(record).split("\n")]
        return "\n    ".join([_visible(line) for line in lines if line])


def _is_own(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] == OWN or record.name == "py.warnings"


def _fixed_part(record: logging.LogRecord) -> str:
    fixed = _FIXED_PART.match(str(record.msg))
    return f"{record.name}: {fixed[0].strip() if fixed else ''}"[:200]


def _trace(exc: BaseException) -> Iterator[str]:
    cause = exc.__cause__ or (None if exc.__suppress_context__ else exc.__context__)
    if cause is not None:
        yield from _trace(cause)
    for frame in traceback.extract_tb(exc.__traceback__):
        yield f"{frame.filename}:{frame.lineno} in {frame.name}"
    if isinstance(exc, BaseExceptionGroup):
        for member in exc.exceptions:
            yield from _trace(member)
    kind = type(exc)
    # Only these messages certainly hold nothing that a client or an upstream sent.
    has_safe_text = isinstance(exc, TapewayError) or (
        isinstance(exc, OSError) and kind.__module__ == "builtins"
    )
    yield f"{kind.__qualname__}: {exc}" if has_safe_text else kind.__qualname__


def _time_of(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _visible(text: str) -> str:
    return _UNSAFE.sub(lambda match: ascii(match[0])[1:-1], text)
