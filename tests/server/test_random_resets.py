"""Connections are reset at random places on both sides: each is an outcome, and no fault of tapeway's."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Literal

import pytest

from tapeway.core.model.control import Delivery, Mode
from tapeway.server.proxy import ProxyOptions
from tests.server.in_process_proxy import KIB, MIB, RunningProxy, running_proxy
from tests.support.faults import faults
from tests.support.raw_client import RawClient
from tests.support.thoroughness import runs_everything

RESETS = 10_000 if runs_everything() else 300
AT_ONCE = 10
SIZES = (0, 1, 100, 3 * KIB, 70 * KIB, 300 * KIB)
End = Literal["reset", "close", "go on"]
KINDS: tuple[tuple[Mode, Delivery], ...] = (
    ("auto", "buffer"),
    ("record", "stream"),
    ("passthrough", "buffer"),
)


def framed(draw: Random, size: int) -> bytes:
    """A body of this size with the fields that frame it: under a length, or in chunks."""
    body = draw.randbytes(size)
    if draw.random() < 0.5:
        return b"Content-Length: %d\r\n\r\n%b" % (size, body)
    step = draw.choice((10, 1000, 20_000)) if size < 10_000 else 20_000
    pieces = [body[at : at + step] for at in range(0, size, step)]
    chunks = b"".join([b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces])
    return b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


def cut(draw: Random, wire: bytes) -> tuple[list[bytes], End]:
    """The bytes up to a random place in random segments, and what comes after these."""
    end: End = draw.choice(("reset", "reset", "close", "go on"))
    if end != "go on":
        wire = wire[: draw.randrange(len(wire) + 1)]
    places = sorted({0, *[draw.randrange(len(wire) + 1) for _ in range(draw.randrange(3))]})
    return [wire[a:b] for a, b in zip(places, [*places[1:], len(wire)], strict=True)], end


async def turns(draw: Random) -> None:
    """Let others go on for a few turns of the loop."""
    for _ in range(draw.choice((0, 0, 1, 2, 5, 20))):
        await asyncio.sleep(0)


def end_connection(writer: asyncio.StreamWriter, end: End) -> None:
    found: socket.socket | None = writer.get_extra_info("socket")
    if end == "reset" and found is not None:
        with contextlib.suppress(OSError):
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
    else:
        writer.close()


@asynccontextmanager
async def cutting_upstream(draw: Random) -> AsyncIterator[str]:
    """A service that breaks off most of its answers."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        end: End = "close"
        try:
            while True:
                # Bodies are left unread, which resets the connection at its close.
                await reader.readuntil(b"\r\n\r\n")
                await turns(draw)
                wire = b"HTTP/1.1 200 OK\r\n" + framed(draw, draw.choice(SIZES))
                segments, end = cut(draw, wire)
                for segment in segments:
                    await writer.drain()
                    writer.write(segment)
                    await turns(draw)
                if end != "go on":
                    break
        # uvloop raises RuntimeError where the standard loop raises ConnectionError.
        except (ConnectionError, asyncio.IncompleteReadError, RuntimeError):
            return
        finally:
            # The loop may end while a connection is idle.
            end_connection(writer, end)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=MIB)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def ask(draw: Random, proxy: RunningProxy, number: int) -> None:
    """Send a request, and break the connection off at a random place."""
    line = draw.choice((b"GET", b"POST", b"POST", b"PUT"))
    head = b"%b /%d HTTP/1.1\r\nHost: %b\r\n" % (line, number % 40, proxy.host)
    wire = head + (b"\r\n" if line == b"GET" else framed(draw, draw.choice(SIZES)))
    segments, end = cut(draw, wire)
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        async with proxy.connect() as client:
            for segment in segments:
                await client.send(segment)
                await turns(draw)
            if end == "go on":
                await read_some(draw, client)
            elif end == "close":
                client.finish()
                await read_some(draw, client)
            else:
                client.reset()


async def read_some(draw: Random, client: RawClient) -> None:
    """Read an answer, or leave within it."""
    if draw.random() < 0.5:
        await client.answer()
    else:
        await turns(draw)
        client.reset()


@pytest.mark.parametrize("kind", KINDS, ids=" ".join)
async def test_a_reset_is_an_outcome_without_a_traceback(kind: tuple[Mode, Delivery]) -> None:
    mode, delivery = kind
    draw = Random(mode)
    options = ProxyOptions(max_body=8 * MIB, body_idle_s=10, delivery=delivery)
    async with cutting_upstream(draw) as upstream:
        with faults() as found:
            async with running_proxy(upstream, mode=mode, options=options) as proxy:
                for start in range(0, RESETS // len(KINDS), AT_ONCE):
                    await asyncio.gather(
                        *[ask(draw, proxy, number) for number in range(start, start + AT_ONCE)]
                    )
                await proxy.proxy.wait_until_idle()

    assert found == []
