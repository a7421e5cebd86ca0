"""An upstream that says a secret back in every way an answer can."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Self

import orjson

from tapeway.testing.answer import StandInAnswer
from tapeway.testing.content_codings import encode_answer
from tests.support.listening import read_request

JSON = ("Content-Type", "application/json")
SSE = ("Content-Type", "text/event-stream")


def _framed(answer: StandInAnswer, *trailers: str) -> list[bytes]:
    lines = [f"HTTP/1.1 {answer.status} Said", *(f"{n}: {v}" for n, v in answer.headers)]
    if not answer.chunked:
        lines.append(f"Content-Length: {len(answer.body)}")
        return ["\r\n".join([*lines, "", ""]).encode() + answer.body]
    lines += ["Transfer-Encoding: chunked", *(["Trailer: X-Echo"] if trailers else [])]
    head = "\r\n".join([*lines, "", ""]).encode()
    chunks = [b"%x\r\n%b\r\n" % (len(write), write) for write in answer.writes]
    return [head, *chunks, "\r\n".join(["0", *trailers, "", ""]).encode()]


def _json(secret: str, status: int = 200, *fields: tuple[str, str]) -> StandInAnswer:
    body = orjson.dumps({"error": {"message": f"Your key {secret} is not known."}})
    return StandInAnswer(status, (JSON, *fields), (body,))


def _events(pieces: Iterable[str]) -> StandInAnswer:
    """One token an event, as models speak."""
    events = [
        b"data: " + orjson.dumps({"choices": [{"index": 0, "delta": {"content": piece}}]}) + b"\n\n"
        for piece in pieces
    ]
    return StandInAnswer(200, (SSE,), (*events, b"data: [DONE]\n\n"), chunked=True)


def _tokens(secret: str) -> list[str]:
    return ["You said ", *(secret[at : at + 5] for at in range(0, len(secret), 5)), ", no?"]


def _halves(secret: str) -> StandInAnswer:
    """Two chunks, cut in the midst of the secret."""
    body = _json(secret).body
    at = body.index(secret.encode()) + len(secret) // 2
    return StandInAnswer(200, (JSON,), (body[:at], body[at:]), chunked=True)


def _in(coding: str) -> Callable[[str], list[bytes]]:
    return lambda secret: _framed(encode_answer(_events([f"Is it {secret}?"]), (coding,), coding))


def _whole_in(coding: str) -> Callable[[str], list[bytes]]:
    return lambda secret: _framed(encode_answer(_json(secret), (coding,), coding))


WAYS: Mapping[str, Callable[[str], list[bytes]]] = {
    "nothing": lambda _: _framed(StandInAnswer(200, (JSON,), (b'{"ok": true}',))),
    "body": lambda secret: _framed(_json(secret)),
    "header": lambda secret: _framed(_json("…", 200, ("X-Echo", f"key={secret}"))),
    "error": lambda secret: _framed(_json(secret, 401)),
    "set-cookie": lambda secret: _framed(
        _json("…", 200, ("Set-Cookie", f"session={secret}; Path=/; HttpOnly"))
    ),
    "event": lambda secret: _framed(_events([f"Your key is {secret}, is it not?"])),
    "events": lambda secret: _framed(_events(_tokens(secret))),
    "chunks": lambda secret: _framed(_halves(secret)),
    "trailer": lambda secret: _framed(_events(["hello"]), f"X-Echo: {secret}"),
    **{f"{coding} events": _in(coding) for coding in ("gzip", "deflate", "br", "zstd")},
    **{f"{coding} body": _whole_in(coding) for coding in ("gzip", "deflate", "br", "zstd")},
}


class Mirror:
    """Answers `/NAME…` in the way that `said` has for that name, with the secret there.

    Serves from a thread of its own between `with` and its end.
    """

    def __init__(self, said: Mapping[str, tuple[str, str]]) -> None:
        """`said` has a way and a secret for each name."""
        self._said = said
        self.received: dict[str, bytes] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mirror")
        self._connections: set[asyncio.StreamWriter] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=2**20)
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def _stop(self) -> None:
        self._server.close()
        for writer in self._connections:
            writer.transport.abort()
        await self._server.wait_closed()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            while request := await read_request(reader):
                name = request.split(b" ", 2)[1].decode().strip("/").partition("?")[0]
                self.received[name] = request
                way, secret = self._said[name]
                for write in WAYS[way](secret):
                    writer.write(write)
                    await writer.drain()
        except ConnectionError:
            pass
        finally:
            self._connections.discard(writer)
            writer.transport.abort()
