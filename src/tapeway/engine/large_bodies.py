"""Stores large bodies: decodes and redacts while copying file to file.

The work is done in threads, piece by piece; no body is in memory as a whole, but for one whose
coding is broken.
"""

import asyncio
import logging
from collections.abc import Collection, Generator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import cast

from tapeway.body_files import body_pieces, in_threads
from tapeway.core.cassette.plan import LargeBodyDigests
from tapeway.core.http.content_codings import (
    Decoder,
    content_coding,
    decoder,
    has_content_coding,
    keeps_coding,
    without_coding_fields,
)
from tapeway.core.http.headers import find_header
from tapeway.core.matching.body_digest import BodyDigester
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import (
    CUT,
    LARGE_BODY,
    NO_CHUNK_TIMES,
    BodyFile,
    ChunkTimes,
    Headers,
    Request,
    Response,
)
from tapeway.core.model.request_fields import RequestFields
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.leak_guard import LeakGuard
from tapeway.core.redaction.redactor import Redactor
from tapeway.core.redaction.spans import move_chunk_ends
from tapeway.ports import CassetteStore

log = logging.getLogger(__name__)


def warn_stored_plain(name: str, request: Request, headers: Headers) -> None:
    """Log that a coded body is stored decoded in a cassette, because of a secret in it.

    The request is as it is stored, and the header fields are those of the coded response.
    """
    log.warning(
        "cassette '%s': the response to %s %s in the coding %s shows a secret: it was stored decoded, "
        "without its checksums",
        *(name, request.method, request.target, content_coding(headers).decode("latin-1")),
    )


class UndecodableBody(Exception):
    """The body is not in its content coding, or exceeds the limit when decoded."""


async def digest_large_body(
    request: Request, redactor: Redactor, known: Sequence[Secret] = ()
) -> LargeBodyDigests:
    """The digests of a request's large body, without the known values too. Raises StoreError."""
    file = _large_body(request)
    redactor = redactor.learning(known)
    sent = BodyDigester(request.fields)
    body = _digested(sent, body_pieces(file))
    stored, found = await _digest_stored(request.fields, body, redactor)
    # What stands in one place is replaced in every other, also before it.
    if taught := redactor.taught_by(found):
        redactor = redactor.learning(taught)
        stored, found = await _digest_stored(request.fields, body_pieces(file), redactor)
    older = stored
    if found:
        pieces = body_pieces(file)
        older, _ = await _digest_stored(request.fields, pieces, redactor.of_earlier_versions)
    return LargeBodyDigests(sent.finish(), stored, older, (*known, *taught))


async def digest_as_recorded(
    request: Request, redactor: Redactor, placeholders: Iterable[tuple[str, ...]]
) -> list[BodyFile]:
    """The digests of a large body without the values of each of these sets of placeholders alone.

    Raises StoreError.
    """
    file = _large_body(request)
    digests: list[BodyFile] = []
    for names in placeholders:
        pieces = body_pieces(file)
        digest, _ = await _digest_stored(request.fields, pieces, redactor.only(names))
        digests.append(digest)
    return digests


async def recorded_values(file: BodyFile, redactor: Redactor) -> list[Secret]:
    """The values of recorded placeholders in a large body. Raises StoreError."""
    return await _recorded_in(body_pieces(file), redactor)


async def _recorded_in(pieces: Iterable[bytes], redactor: Redactor) -> list[Secret]:
    secrets: dict[Secret, None] = {}
    async with aclosing(in_threads(redactor.recorded_in(pieces))) as steps:
        async for found in steps:
            secrets |= dict.fromkeys(found)
    return list(secrets)


async def taught_by_large_answer(
    response: Response, method: str, redactor: Redactor, limit: int
) -> list[Secret]:
    """What a large body of an answer teaches: its secrets, and values of recorded placeholders.

    Its coding is taken off where that can be done. Raises StoreError.
    """
    if response.file is None:
        return []
    try:
        return await _search(response, method, redactor, limit)
    except UndecodableBody:
        return []


async def _search(response: Response, method: str, redactor: Redactor, limit: int) -> list[Secret]:
    def plain() -> Iterable[bytes]:
        pieces = body_pieces(cast(BodyFile, response.file))
        if not has_content_coding(response, method):
            return pieces
        return _decoding(response, limit).decode(pieces)

    redacting = _BodyRedactor(redactor, response.headers)
    await _run_through(redacting.redact(plain()))
    return [*redactor.taught_by(redacting.secrets), *await _recorded_in(plain(), redactor)]


async def _run_through(pieces: Iterable[bytes]) -> None:
    async with aclosing(in_threads(_emptied(pieces))) as steps:
        async for _ in steps:
            pass


def _large_body(request: Request) -> BodyFile:
    if request.file is None:
        raise ValueError("there is no large body")
    return request.file


async def _digest_stored(
    fields: RequestFields, body: Iterable[bytes], redactor: Redactor
) -> tuple[BodyFile, Collection[Secret]]:
    """The digests of a large body without secrets, and those that it has."""
    digester, redacting = BodyDigester(fields), _BodyRedactor(redactor, fields.headers)
    await _run_through(_digested(digester, redacting.redact(body)))
    return digester.finish(), redacting.secrets


def has_large_body(item: Interaction) -> bool:
    """Whether a body of an interaction is in a file, or is to be moved into one."""
    request, response = item.request, item.response
    return request.file is not None or response.file is not None or response.size > LARGE_BODY


class LargeBodyStorage:
    """Puts the large bodies of one recording into the store, decoded and redacted."""

    def __init__(
        self, store: CassetteStore, name: str, redactor: Redactor, guard: LeakGuard, limit: int
    ) -> None:
        self._store = store
        self._name = name
        self._redactor = redactor
        self._guard = guard
        self._limit = limit

    async def keep(self, asked: Request, interaction: Interaction) -> Interaction:
        """The interaction with its large bodies in the store; `asked` is the request as it was sent.

        Raises StoreFull, StoreError; then no recording refers to the bodies stored so far.
        """
        request, response = interaction.request, interaction.response
        if request.file is not None and asked.file is not None:
            request = replace(request, file=await self._sent(asked.fields, asked.file))
        if response.file is not None:
            response = await self._answer(request, response, response.file)
            if response.file is not None and not response.file.size:
                # It was empty once decoded.
                response = replace(response, file=None)
        elif len(response.body) > LARGE_BODY:
            # It was small before it was decoded.
            response = replace(response, body=b"", file=await self._keep([response.body]))
        if request is interaction.request and response is interaction.response:
            return interaction
        return replace(interaction, request=request, response=response)

    async def _sent(self, fields: RequestFields, raw: BodyFile) -> BodyFile:
        """The body of a request, in the store."""
        redacting, digester = _BodyRedactor(self._redactor, fields.headers), BodyDigester(fields)
        kept = await self._keep(_digested(digester, redacting.redact(body_pieces(raw))))
        placeholders = {
            self._redactor.placeholder(secret.label, secret.value).decode()
            for secret in redacting.secrets
        }
        described = replace(digester.finish(), placeholders=tuple(sorted(placeholders)))
        return described.copied_to(kept)

    async def _answer(self, request: Request, response: Response, raw: BodyFile) -> Response:
        """The response to a stored request, with the body in the store."""
        if has_content_coding(response, request.method):
            try:
                if keeps_coding(request.headers, response.head):
                    if not await self._has_secret(response, raw):
                        return replace(response, file=await self._keep(body_pieces(raw)))
                    warn_stored_plain(self._name, request, response.headers)
                return await self._decoded(response, raw)
            except UndecodableBody:
                shown = await asyncio.to_thread(self._shown, response, raw)
                if shown is not None:
                    warn_stored_plain(self._name, request, response.headers)
                    return replace(shown, body=b"", file=await self._keep([shown.body]))
        redacting = _BodyRedactor(self._redactor, response.headers, response.arrivals())
        file = await self._keep(redacting.redact(body_pieces(raw)))
        return replace(response.with_arrivals(redacting.moved()), file=file)

    def _shown(self, response: Response, raw: BodyFile) -> Response | None:
        """What a broken body says, redacted; None where it shows no secret."""
        whole = replace(response, file=None, body=b"".join(body_pieces(raw)))
        redacted = self._redactor.response(whole)
        return redacted if content_coding(redacted.headers) == b"" else None

    async def _decoded(self, response: Response, raw: BodyFile) -> Response:
        decoding = _decoding(response, self._limit)
        redacting = _BodyRedactor(self._redactor, response.headers, decoding.arrivals)
        file = await self._keep(redacting.redact(decoding.decode(body_pieces(raw))))
        head = replace(response.head, headers=without_coding_fields(response.headers))
        return replace(response.with_arrivals(redacting.moved()), head=head, file=file)

    async def _has_secret(self, response: Response, raw: BodyFile) -> bool:
        """Whether a secret stands in a coded body. Raises UndecodableBody, StoreError."""
        redacting = _BodyRedactor(self._redactor, response.headers)
        plain = _decoding(response, self._limit).decode(body_pieces(raw))
        await _run_through(redacting.redact(plain))
        return redacting.has_replaced

    async def _keep(self, source: Iterable[bytes]) -> BodyFile:
        return await self._store.keep(self._name, self._guard.watched(source))


def _decoding(response: Response, limit: int) -> "_BodyDecoder":
    codec = decoder(content_coding(response.headers), limit=limit)
    if codec is None:
        raise UndecodableBody
    truncated = response.verdict in CUT
    return _BodyDecoder(codec, response.arrivals(), truncated=truncated)


def _digested(digester: BodyDigester, source: Iterable[bytes]) -> Generator[bytes]:
    """The pieces, each fed to the digester."""
    for piece in source:
        digester.feed(piece)
        yield piece


def _emptied(source: Iterable[bytes]) -> Generator[bool]:
    """As many steps as there are pieces, and none of their bytes."""
    for _ in source:
        yield True


class _BodyRedactor:
    """Takes the secrets out of a body and moves its chunk ends accordingly."""

    def __init__(
        self, redactor: Redactor, headers: Headers, arrivals: ChunkTimes = NO_CHUNK_TIMES
    ) -> None:
        self._window = redactor.stream(find_header(headers, b"content-type") or b"")
        self._arrivals = arrivals

    def redact(self, source: Iterable[bytes]) -> Generator[bytes]:
        for piece in source:
            if out := self._window.feed(piece):
                yield out
        if out := self._window.finish():
            yield out

    @property
    def has_replaced(self) -> bool:
        return bool(self._window.replaced)

    @property
    def secrets(self) -> Collection[Secret]:
        """The replaced secrets, those met first."""
        return self._window.secrets

    def moved(self) -> ChunkTimes:
        return move_chunk_ends(self._arrivals, self._window.replaced)


class _BodyDecoder:
    """Decodes a body and keeps the ends of the chunks in which it came."""

    def __init__(self, codec: Decoder, arrivals: ChunkTimes, *, truncated: bool) -> None:
        self.arrivals = ChunkTimes()
        self._decoder = codec
        self._encoded = arrivals
        self._truncated = truncated

    def decode(self, source: Iterable[bytes]) -> Generator[bytes]:
        encoded = iter(self._encoded)
        at_ms, left = next(encoded, (0.0, 0))
        decoded = 0
        for piece in source:
            start = 0
            while start < len(piece):
                part = piece[start : start + left] if left else piece[start:]
                start += len(part)
                left -= len(part)
                if out := self._decoder.feed(part):
                    decoded += len(out)
                    yield out
                if left <= 0:
                    self.arrivals.add(at_ms, decoded)
                    decoded = 0
                    at_ms, left = next(encoded, (at_ms, 0))
        ending = self._decoder.finish()
        if ending != "complete" and not (self._truncated and ending == "cut"):
            raise UndecodableBody
