"""Parses a client's requests with aiohttp's parser, fed one message at a time.

Fed whole segments, aiohttp's parser loses valid requests that share a segment with a malformed one
after them, leaves a handler waiting when a body's framing breaks later, and rejects methods that
are not in its list. So this module splits the input at the end of each message. It finds that end
with what aiohttp parsed from the headers, and an unknown method is replaced by POST on the way:
aiohttp alone decides what is well-formed. It also decides where a chunked body ends; if that cannot
be seen from here, the rest of the connection is passed on unsplit.
"""

import re
from collections.abc import Sequence
from typing import Any, Protocol

from aiohttp import hdrs
from aiohttp.http_exceptions import BadHttpMessage, BadStatusLine, HttpProcessingError
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestPayloadError

Messages = list[tuple[RawRequestMessage, StreamReader]]

_HEADER_END = b"\r\n\r\n"
_EMPTY_LINES = re.compile(rb"(?:\r\n)*")
_MAX_METHOD = 64
_METHOD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_KNOWN_METHODS = frozenset(
    b"""ACL BIND CHECKOUT CONNECT COPY DELETE GET HEAD LINK LOCK M-SEARCH MERGE MKACTIVITY
    MKCALENDAR MKCOL MOVE NOTIFY OPTIONS PATCH POST PRI PROPFIND PROPPATCH PURGE PUT QUERY REBIND
    REPORT SEARCH SOURCE SUBSCRIBE TRACE UNBIND UNLINK UNLOCK UNSUBSCRIBE""".split()
)
"""The methods that aiohttp's parser accepts; any other token is valid too (RFC 9110 section 9.1)."""
_LENGTH = re.compile(rb"\r\ncontent-length: ?([0-9]{1,9})\r\n", re.IGNORECASE)
_UPGRADE = re.compile(rb"\r\nupgrade:", re.IGNORECASE)
_SIMPLE_REQUEST = re.compile(rb"[A-Za-z]{1,64} [^ \r\n]{1,16384}+\r?\n")
BAD_VERSION = "Bad status line:\n  Invalid HTTP version"
"""How aiohttp's messages begin for a version that it does not read."""
_SUBSTITUTE_METHOD = b"POST"
_MAX_LENGTH = 2**63


class Parser(Protocol):
    """What aiohttp's connection needs of its parser."""

    def feed_data(self, data: bytes, /) -> tuple[Sequence[Any], bool, bytes]: ...
    def message_consumed(self) -> None: ...
    def pause_reading(self) -> None: ...
    def set_upgraded(self, val: bool, /) -> None: ...


class _Closed:
    """Stands for the parser of a connection that is lost."""

    def feed_data(self, data: bytes, /) -> tuple[Sequence[Any], bool, bytes]:
        return (), False, b""

    def message_consumed(self) -> None: ...
    def pause_reading(self) -> None: ...
    def set_upgraded(self, val: bool, /) -> None: ...


_CLOSED = _Closed()


class HeaderTooLarge(BadHttpMessage):
    """The header fields of a request are too large together."""


class RequestParser:
    """Accepts any method, and returns every request that precedes a malformed one.

    The error that ended the input is raised once. If requests precede it in the same segment, they
    are returned first, and the error is `overdue` until the next call of `feed_data`.
    """

    def __init__(self, inner: Parser, *, queue: int, max_header: int) -> None:
        self._inner = inner
        self._room = queue
        self._max_header = max_header
        self._header_size = 0
        # Input that the parser has not been given yet.
        self._held = b""
        # The last bytes of an unfinished header: its end may be split between two segments.
        self._header_tail = b""
        # How much of a body with a Content-Length is still to come.
        self._body_left = 0
        self._chunked = False
        self._chunked_tail = b""
        # Whether message boundaries can no longer be seen, so that input is passed on unsplit.
        self._unsplit = False
        self._method: bytes | None = None
        self._payload: StreamReader | None = None
        self._error: HttpProcessingError | None = None
        self._raised = False
        self.rested = False
        """True where it was found `at_rest`, and was given nothing since."""

    def feed_data(self, data: bytes) -> tuple[Messages, bool, bytes]:
        messages: Messages = []
        if not data and self.at_rest:
            # aiohttp resumes after a body was read, and the parser has no input left.
            return messages, False, b""
        self.rested = False
        if self._is_one_message(data):
            upgraded, tail = self._feed(data, messages)
            self._body_left = 0
        else:
            upgraded, tail = self._feed_split(data, messages)
        if upgraded:
            return messages, True, tail
        if self._error is not None and not messages and not self._raised:
            self._raised = True
            raise self._error
        return messages, False, b""

    def _feed_split(self, data: bytes, messages: Messages) -> tuple[bool, bytes]:
        rest, self._held = self._held + data, b""
        # A call without data resumes after a pause: the parser may hold input of its own.
        resumes = not data
        while (rest or resumes) and self._error is None:
            if resumes:
                resumes, piece = False, b""
            elif self._must_wait():
                self._held = rest
                break
            else:
                piece, rest = self._split(rest)
            upgraded, tail = self._feed(piece, messages)
            if upgraded:
                return True, tail + rest
        return False, b""

    @property
    def content(self) -> StreamReader | None:
        """The body of the last request, if it has one."""
        return self._payload

    @property
    def overdue(self) -> bool:
        """Whether an error is still to be raised, because requests precede it."""
        return self._error is not None and not self._raised

    @property
    def at_rest(self) -> bool:
        """Whether no message is incomplete, and the next input begins one."""
        if self._held or self._header_tail or self._body_left or self._chunked or self._unsplit:
            return False
        self.rested = self._error is None and (self._payload is None or self._payload.is_eof())
        return self.rested

    @property
    def holds_message(self) -> bool:
        """Whether a request with its whole header waits to be parsed."""
        return not self._unsplit and _HEADER_END in self._held

    def end_input(self) -> None:
        """Fail the body that is not complete: the client sends no more."""
        unfinished = self._body_left > 0 or self._chunked or self._unsplit
        if unfinished and self._payload is not None and not self._payload.is_eof():
            self._payload.set_exception(RequestPayloadError("the client has finished sending"))

    def close(self) -> None:
        """Let go of what refers to the connection: a collector may come late."""
        self._inner, self._payload = _CLOSED, None

    def message_consumed(self) -> None:
        self._room += 1
        self._inner.message_consumed()

    def pause_reading(self) -> None:
        self._inner.pause_reading()

    def set_upgraded(self, val: bool) -> None:
        self._inner.set_upgraded(val)

    def _is_one_message(self, data: bytes) -> bool:
        """Whether a segment is exactly one request with its body, as most are.

        Then it need not be split: if it is malformed, no other request is lost.
        """
        if self._held or self._error is not None or self._must_wait():
            return False
        if self._unsplit or self._header_tail or self._body_left or self._chunked:
            return False
        end = data.find(_HEADER_END) + len(_HEADER_END)
        if (
            not len(_HEADER_END) <= end <= self._max_header
            or data[: data.find(b" ")] not in _KNOWN_METHODS
        ):
            return False
        length = _LENGTH.search(data, 0, end)
        if length is None or _UPGRADE.search(data, 0, end):
            return False
        return end + int(length[1]) == len(data)

    def _must_wait(self) -> bool:
        """Whether the next message must wait for room, or until the last body is parsed."""
        if self._unsplit or self._header_tail or self._body_left or self._chunked:
            return False
        return self._room <= 0 or (self._payload is not None and not self._payload.is_eof())

    def _feed(self, piece: bytes, messages: Messages) -> tuple[bool, bytes]:
        try:
            found, upgraded, tail = self._inner.feed_data(piece)
            if found:
                messages += self._note_framing(found)
        except HttpProcessingError as exc:
            self._error = exc
            if self._payload is not None and not self._payload.is_eof():
                self._payload.set_exception(RequestPayloadError("broken framing"))
            return False, b""
        if self._chunked:
            self._check_chunked_end(piece)
        return upgraded, tail

    def _split(self, data: bytes) -> tuple[bytes, bytes]:
        """What belongs to the current message, and what follows it."""
        if self._body_left:
            piece = data[: self._body_left]
            self._body_left -= len(piece)
            return piece, data[len(piece) :]
        if self._chunked or self._unsplit:
            return data, b""
        return self._split_header(data)

    def _split_header(self, data: bytes) -> tuple[bytes, bytes]:
        if not self._header_tail:
            data = self._start_message(data)
            self._header_size = 0
            if self._error is not None:
                return b"", b""
        joined = self._header_tail + data
        end = joined.find(_HEADER_END) + len(_HEADER_END)
        if end < len(_HEADER_END):
            end, self._header_tail = len(data), joined[1 - len(_HEADER_END) :]
        else:
            end, self._header_tail = end - len(self._header_tail), b""
        self._header_size += end
        if self._header_size > self._max_header:
            self._error = HeaderTooLarge("header fields too large together")
            return b"", b""
        return data[:end], data[end:]

    def _start_message(self, data: bytes) -> bytes:
        """A message's first bytes, with a method that the parser knows."""
        self._method = None
        if data.startswith(b"\r"):
            # A server ignores empty lines before a request (RFC 9112 section 2.2).
            data = data[_EMPTY_LINES.match(data).end() :]  # type: ignore[union-attr] # it always matches
        if _SIMPLE_REQUEST.match(data):
            # The only line of HTTP/0.9: its client would wait for ever for the answer.
            self._error = BadStatusLine(error=f"{BAD_VERSION} 0.9")
            return b""
        space = data.find(b" ", 0, _MAX_METHOD + 1)
        method = data if space < 0 else data[:space]
        if method in _KNOWN_METHODS and space > 0:
            return data
        if method == b"\r" or (_METHOD.fullmatch(method) and space < 0):
            self._held = data
            return b""
        if _METHOD.fullmatch(method):
            self._method = method
            return _SUBSTITUTE_METHOD + data[space:]
        return data

    def _note_framing(self, found: Sequence[tuple[RawRequestMessage, StreamReader]]) -> Messages:
        """Remember how the body of the message just parsed is framed."""
        self._room -= len(found)
        (message, self._payload), *more = found
        if self._method is not None:
            message = message._replace(method=self._method.decode())
            self._method = None
        if more or self._chunked:
            # The end of a chunked body and the next message arrived together.
            self._chunked, self._unsplit = False, True
        elif message.chunked:
            self._chunked, self._chunked_tail = True, b""
        else:
            self._body_left = int(message.headers.get(hdrs.CONTENT_LENGTH, 0))
            if self._body_left > _MAX_LENGTH:
                # The parser takes its largest number for no length at all.
                raise BadHttpMessage("Content-Length overflow")
        return [(message, self._payload), *more]

    def _check_chunked_end(self, piece: bytes) -> None:
        self._chunked_tail = (self._chunked_tail + piece[-len(_HEADER_END) :])[-len(_HEADER_END) :]
        if self._payload is not None and self._payload.is_eof():
            self._chunked = False
            # An incomplete message after the body never ends like this; other endings may hide one.
            self._unsplit = self._unsplit or self._chunked_tail != _HEADER_END
