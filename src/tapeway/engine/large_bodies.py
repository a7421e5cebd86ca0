"""Large bodies on their way into a cassette: plain, without secrets, from file to file in pieces.

What goes through the processor here is gone through in threads; none of it is held in memory whole.
"""

import asyncio
from collections.abc import Generator, Iterable
from contextlib import closing
from dataclasses import replace

from tapeway.body_files import body_pieces
from tapeway.core.http.content_codings import (
    Decoder,
    content_coding,
    decoder,
    has_content_coding,
    without_coding_fields,
)
from tapeway.core.matching.body_digest import BodyDigester
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import (
    LARGE_BODY,
    BodyFile,
    ChunkTimes,
    Request,
    Response,
    move_chunk_ends,
)
from tapeway.core.redaction.leak_guard import LeakGuard
from tapeway.core.redaction.redactor import Redactor
from tapeway.errors import StoreError
from tapeway.ports import CassetteStore


class Unreadable(Exception):
    """The body is not in its content coding, or grows out of bounds in it."""


async def digest_of(request: Request, redactor: Redactor) -> BodyFile:
    """What a cassette would say of a request's large body. Raises StoreError."""
    if request.file is None:
        raise ValueError("there is no large body")
    digester = BodyDigester(request.headers)
    redacting = _Redacting(redactor, ChunkTimes())
    with closing(_feeding(digester, redacting.through(body_pieces(request.file)))) as steps:
        # A thread for each step and not for all: others wait for one, too.
        while await asyncio.to_thread(next, steps, False):
            pass
    return digester.finish()


class BodyRedaction:
    """Brings the large bodies of one recording into the store."""

    def __init__(
        self, store: CassetteStore, name: str, redactor: Redactor, guard: LeakGuard, limit: int
    ) -> None:
        self._store = store
        self._name = name
        self._redactor = redactor
        self._guard = guard
        self._limit = limit

    async def keep(self, asked: Request, interaction: Interaction) -> Interaction:
        """The interaction with its large bodies kept; `asked` is the request as it was sent.

        Raises StoreFull, StoreError; then nothing refers to what was kept by then.
        """
        request, response = interaction.request, interaction.response
        if request.file is not None and asked.file is not None:
            file = await self._redacted(asked.file, ChunkTimes())
            request = replace(request, file=replace(file, parts=request.file.parts))
        if response.file is not None:
            response = await self._answer(asked.method, response, response.file)
            if response.file is not None and not response.file.size:
                # There was nothing in its coding.
                response = replace(response, file=None, chunk_times=ChunkTimes())
        elif sum(len(chunk.data) for chunk in response.chunks) > LARGE_BODY:
            # It was small as long as it was coded.
            chunk_times = ChunkTimes((chunk.at_ms, len(chunk.data)) for chunk in response.chunks)
            kept = await self._keep([chunk.data for chunk in response.chunks])
            response = replace(response, chunks=(), file=kept, chunk_times=chunk_times)
        if request is interaction.request and response is interaction.response:
            return interaction
        return replace(interaction, request=request, response=response)

    async def _answer(self, method: str, response: Response, raw: BodyFile) -> Response:
        cut = response.verdict == "truncated"
        made = decoder(content_coding(response.headers), limit=self._limit)
        if made is not None and has_content_coding(response, method):
            try:
                reading = _Reading(made, response.chunk_times, cut=cut)
                redacting = _Redacting(self._redactor, reading.chunk_times)
                file = await self._keep(redacting.through(reading.through(body_pieces(raw))))
            except Unreadable:
                pass
            else:
                head = replace(response.head, headers=without_coding_fields(response.headers))
                return replace(
                    response, head=head, file=file, chunk_times=redacting.move_chunk_ends()
                )
        redacting = _Redacting(self._redactor, response.chunk_times)
        file = await self._keep(redacting.through(body_pieces(raw)))
        return replace(response, file=file, chunk_times=redacting.move_chunk_ends())

    async def _redacted(self, raw: BodyFile, chunk_times: ChunkTimes) -> BodyFile:
        return await self._keep(_Redacting(self._redactor, chunk_times).through(body_pieces(raw)))

    async def _keep(self, source: Iterable[bytes]) -> BodyFile:
        if (keeper := self._store.capabilities.bodies) is None:
            raise StoreError(
                f"the store {self._store.url} cannot keep a body of more than {LARGE_BODY} bytes: "
                "use a folder, or a smaller --max-body"
            )
        return await keeper.keep(self._name, self._guard.watched(source))


def _feeding(digester: BodyDigester, source: Iterable[bytes]) -> Generator[bool]:
    for piece in source:
        digester.feed(piece)
        yield True


class _Redacting:
    """Takes secrets out of a body that goes through, and moves the ends of its chunks accordingly."""

    def __init__(self, redactor: Redactor, chunk_times: ChunkTimes) -> None:
        self._window = redactor.stream()
        self._chunk_times = chunk_times

    def through(self, source: Iterable[bytes]) -> Generator[bytes]:
        for piece in source:
            if out := self._window.feed(piece):
                yield out
        if out := self._window.finish():
            yield out

    def move_chunk_ends(self) -> ChunkTimes:
        return move_chunk_ends(self._chunk_times, self._window.replaced)


class _Reading:
    """Takes the content coding off a body that goes through; chunks end where they ended on the wire."""

    def __init__(self, made: Decoder, chunk_times: ChunkTimes, *, cut: bool) -> None:
        self.chunk_times = ChunkTimes()
        self._decoder = made
        self._of_the_wire = chunk_times
        self._cut = cut

    def through(self, source: Iterable[bytes]) -> Generator[bytes]:
        borders = iter(self._of_the_wire)
        at_ms, left = next(borders, (0.0, 0))
        plain = 0
        for piece in source:
            start = 0
            while start < len(piece):
                part = piece[start : start + left] if left else piece[start:]
                start += len(part)
                left -= len(part)
                if out := self._decoder.feed(part):
                    plain += len(out)
                    yield out
                if left <= 0:
                    if plain:
                        self.chunk_times.add(at_ms, plain)
                        plain = 0
                    at_ms, left = next(borders, (at_ms, 0))
        self._check()

    def _check(self) -> None:
        ending = self._decoder.finish()
        if ending != "complete" and not (self._cut and ending == "cut"):
            raise Unreadable
