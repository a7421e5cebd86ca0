"""A large request body on its way to an upstream, read from its file piece by piece."""

from contextlib import aclosing

from aiohttp import Payload
from aiohttp.abc import AbstractStreamWriter

from tapeway.body_files import stream
from tapeway.core.model.messages import BodyFile


class Upload(Payload):
    """A body in a file, as aiohttp's client sends it."""

    _autoclose = True

    def __init__(self, file: BodyFile) -> None:
        super().__init__(file)
        self._file = file
        self._size = file.size

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        raise TypeError("a body this large is not held in memory")

    async def write(self, writer: AbstractStreamWriter) -> None:
        async with aclosing(stream(self._file)) as pieces:
            async for piece in pieces:
                await writer.write(piece)
