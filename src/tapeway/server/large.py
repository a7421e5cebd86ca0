"""An answer whose body lies in a file, sent in pieces as they are read."""

import asyncio
import logging
from collections.abc import Generator, Iterable
from contextlib import closing
from dataclasses import replace

from aiohttp import web

from tapeway.body_files import pieces
from tapeway.core.model.messages import BodyFile, Cuts, Headers, Response
from tapeway.errors import StoreError
from tapeway.server.wire import LAST_CHUNK, WireResponse, begin, break_off

log = logging.getLogger(__name__)


class LargeAnswer(WireResponse):
    """Reads on only as fast as the client does, and breaks off where the file cannot be read."""

    def __init__(
        self,
        raw: web.BaseRequest,
        response: Response,
        file: BodyFile,
        marks: Headers,
        *,
        keep_alive: bool,
    ) -> None:
        super().__init__((), keep_alive=keep_alive)
        self._raw = raw
        self._file = file
        self._cuts = response.cuts
        self._chunked = response.head.framing != "length" and raw.version >= (1, 1)
        self._delivery = begin(
            replace(response.head, length=None if self._chunked else file.size),
            marks,
            method=raw.method,
            version=raw.version,
            keep_alive=keep_alive,
        )

    async def write_eof(self, data: bytes = b"") -> None:
        writer = self._raw.writer
        if not self._delivery.piece(b"?"):
            await writer.write(self._delivery.head)
            return
        try:
            with closing(self._frames()) as frames:
                while frame := await asyncio.to_thread(next, frames, b""):
                    await writer.write(frame)
        except StoreError as exc:
            log.warning("an answer was broken off: %s", exc.message)
            self._stays = False
            break_off(self._raw)

    def _frames(self) -> Generator[bytes]:
        # With the first piece: where there is none, nothing looks like a beginning.
        start = self._delivery.head
        body = pieces(self._file)
        for frame in chunks(body, self._cuts) if self._chunked else body:
            yield start + frame
            start = b""


def chunks(body: Iterable[bytes], cuts: Cuts) -> Generator[bytes]:
    """A body in HTTP chunks of the lengths that were recorded, and their end."""
    lengths = (length for _, length in cuts if length)
    left = 0
    for piece in body:
        frame: list[bytes] = []
        start = 0
        while start < len(piece):
            if not left:
                left = next(lengths, len(piece) - start)
                frame.append(b"%x\r\n" % left)
            part = piece[start : start + left]
            frame.append(part)
            start += len(part)
            left -= len(part)
            if not left:
                frame.append(b"\r\n")
        yield b"".join(frame)
    yield LAST_CHUNK
