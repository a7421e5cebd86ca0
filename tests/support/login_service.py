"""A service that authenticates connections: who logs in on one is the user of all that follows."""

import asyncio
import re
import ssl
from typing import Self

from tests.support.listening import Listening

CHALLENGE = b"TlRMTVNTUAACAAAAAwAMADgAAAAFgokC"
_STEP = re.compile(rb"(?m)^(?:proxy-)?authorization: (?:ntlm|negotiate) (\S+)\r$", re.I)
_BASIC = re.compile(rb"(?m)^authorization: basic (\S+)\r$", re.I)


def first_step(scheme: bytes = b"NTLM", field: bytes = b"Authorization") -> bytes:
    """The field with which a client asks for the challenge."""
    return b"%b: %b TlRMTVNTUAABAAAAB4IIogAAAAA" % (field, scheme)


def login_of(user: bytes, scheme: bytes = b"NTLM", field: bytes = b"Authorization") -> bytes:
    """The field with which a user answers the challenge."""
    return b"%b: %b TlRMTVNTUAADAAAAGAAYAIIAAAA.%b" % (field, scheme, user)


class LoginService:
    """Serves between `async with` and its end. `/mail` is the mail of the connection's user.

    `Negotiate` takes one step, and `Basic` lasts for the connection too.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._listening = Listening(self._answer, tls=tls)
        self._users: dict[asyncio.StreamWriter, bytes] = {}
        self._challenged: set[asyncio.StreamWriter] = set()
        self.asked: list[tuple[bytes, int]] = []
        """The path of each request, and the number of its connection."""
        self._numbers: dict[asyncio.StreamWriter, int] = {}
        self.hold: asyncio.Event | None = None
        """What the answer waits for, in the middle of its body."""
        self.held = asyncio.Event()

    async def __aenter__(self) -> Self:
        self.port = await self._listening.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._listening.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        return self._listening.connections

    async def left(self, number: int) -> None:
        """Wait until no more than so many connections are open."""
        while self._listening.open_connections > number:
            self._listening.left.clear()
            await self._listening.left.wait()

    async def _answer(
        self, request: bytes, _: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        number = self._numbers.setdefault(writer, len(self._numbers))
        path = request.split(b" ", 2)[1]
        self.asked.append((path, number))
        step, basic = _STEP.search(request), _BASIC.search(request)
        if step is not None and b"AAB" in step[1]:
            self._challenged.add(writer)
            self._send(writer, b"401 Unauthorized", b"", b"WWW-Authenticate: NTLM " + CHALLENGE)
            return True
        more = b"X-A: b"
        if step is not None:
            is_ntlm = b"ntlm " in step[0].lower()
            if is_ntlm and writer not in self._challenged:
                self._send(writer, b"400 Bad Request", b"no handshake")
                return True
            self._challenged.discard(writer)
            self._users[writer] = step[1].rpartition(b".")[2]
            more = more if is_ntlm else b"WWW-Authenticate: Negotiate b1gwFgADCgEA"
        elif basic is not None:
            self._users[writer], more = basic[1], b"Persistent-Auth: true"
        if (user := self._users.get(writer)) is None:
            asks = b'WWW-Authenticate: Basic realm="a, b"\r\nWWW-Authenticate: Negotiate, NTLM'
            self._send(writer, b"401 Unauthorized", b"who?", asks)
            return True
        if path == b"/bye":
            self._send(writer, b"200 OK", b"bye", b"Connection: close")
            writer.close()
            return False
        body = b"mail of " + user
        if self.hold is not None:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body[:4]))
            self.held.set()
            await self.hold.wait()
            writer.write(body[4:])
        else:
            self._send(writer, b"200 OK", body, more)
        return True

    def _send(
        self, writer: asyncio.StreamWriter, status: bytes, body: bytes, more: bytes = b"X-A: b"
    ) -> None:
        head = b"HTTP/1.1 %b\r\n%b\r\nContent-Length: %d\r\n\r\n" % (status, more, len(body))
        writer.write(head + body)
