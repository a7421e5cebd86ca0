"""Stores large bodies: decodes and redacts while copying file to file.

The work is done in threads, piece by piece; no body is in memory as a whole, but for one whose
coding is broken.
"""

import asyncio
import logging
from collections.abc import Collection, Generator, Iterable, Iterator
from contextlib import aclosing
from dataclasses import replace

from tapeway.body_files import PIECE, body_pieces, in_threads
from tapeway.core.cassette.plan import LargeBodyDigests
from tapeway.core.http.content_codings import (
    Decoder,
    content_coding,
    decoded_request,
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
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.known_values import NO_RECALL
from tapeway.core.redaction.leak_guard import LeakGuard
from tapeway.core.redaction.redactor import Redactor
from tapeway.core.redaction.spans import digests_of, move_chunk_ends
from tapeway.ports import CassetteStore

log = logging.getLogger(__name__)

_MOST_DECODED = 1024 * 1024 * 1024
"""The decoded size of a request's large body; a larger one is stored as it came."""

_MOST_COMPARED = 8
"""Sets of values, as the last recordings of large bodies have them, without which one is looked up."""


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


async def digest_large_body(request: Request) -> LargeBodyDigests:
    """The digests of a request's large body as it was sent, decoded if it can be. Raises StoreError."""
    if request.fields.content_encoding:
        decoded = decoded_request(request)
        try:
            return LargeBodyDigests(await _digest_sent(decoded), coding=decoded.coding)
        except UndecodableBody:
            pass
    return LargeBodyDigests(await _digest_sent(request))


async def _digest_sent(request: Request) -> BodyFile:
    digester = BodyDigester(request.fields)
    await _run_through(_digested(digester, _pieces_of(request)))
    return digester.finish()


async def digest_redacted(
    request: Request, redactor: Redactor, recorded: Iterable[Collection[str]]
) -> tuple[BodyFile, tuple[BodyFile, ...], tuple[Secret, ...]]:
    """The digests of a request's large body as it would be recorded, and as others recorded it.

    A request with a coding gets its body decoded. `recorded` are the placeholders in large bodies
    that were recorded, the last body first. Returns also the values that the body taught. Raises
    StoreError.
    """
    stored, found = await _digest_without(redactor, request, recalls=True)
    # Earlier versions replaced nothing that the body or another recording teaches.
    digests, others = [stored], [redactor.of_earlier_versions] if found.has_replaced else []
    # What stands in one place is replaced in every other, also before it.
    if taught := found.taught:
        redactor = redactor.learning(taught)
        stored, found = await _digest_without(redactor, request)
    if request.coding:
        # Earlier versions recorded a coded body as it came.
        digests.append(await _digest_sent(replace(request, headers=(), coding=b"")))
    others += _as_recorded(redactor, found.placeholders, recorded)
    digests += [(await _digest_without(other, request))[0] for other in others]
    return stored, tuple([other for other in digests if other != stored]), tuple(taught)


def _as_recorded(
    redactor: Redactor, found: Collection[str], recorded: Iterable[Collection[str]]
) -> list[Redactor]:
    """Redactors that put some of these placeholders alone into a body, as recordings have them."""
    digests = digests_of(found)
    others = [
        placeholders
        for placeholders in recorded
        if placeholders != found and digests_of(placeholders) <= digests
    ]
    return [redactor.only(placeholders) for placeholders in others[:_MOST_COMPARED]]


async def _digest_without(
    redactor: Redactor, request: Request, *, recalls: bool = False
) -> tuple[BodyFile, "_BodyRedactor"]:
    """The digests of a large body that a redactor was used on, and what the redactor found."""
    digester = BodyDigester(request.fields)
    redacting = _BodyRedactor(redactor, request.headers, recalls=recalls)
    pieces = redacting.redact(_pieces_of(request))
    await _run_through(_digested(digester, pieces))
    return digester.finish(), redacting


async def taught_by_large_answer(
    response: Response, method: str, redactor: Redactor, limit: int
) -> list[Secret]:
    """What a large body of an answer teaches: its secrets, and values of recorded placeholders.

    Its coding is taken off where that can be done. Raises StoreError.
    """
    if response.file is None:
        return []
    redacting = _BodyRedactor(redactor, response.headers, recalls=True)
    try:
        pieces: Iterable[bytes] = body_pieces(response.file)
        if has_content_coding(response, method):
            pieces = _decoding(response, limit).decode(pieces)
        await _run_through(redacting.redact(pieces))
    except UndecodableBody:
        return []
    return redacting.taught


async def _run_through(pieces: Iterable[bytes]) -> None:
    async with aclosing(in_threads(_emptied(pieces))) as steps:
        async for _ in steps:
            pass


def _pieces_of(request: Request) -> Iterable[bytes]:
    """The large body of a request, decoded if the request has a coding."""
    pieces = body_pieces(_large_body(request))
    return _without_coding(request.coding, pieces) if request.coding else pieces


def _without_coding(coding: bytes, pieces: Iterable[bytes]) -> Iterator[bytes]:
    if (codec := decoder(coding, limit=_MOST_DECODED)) is None:
        raise UndecodableBody
    for piece in pieces:
        # A few octets may stand for many, and a search of a long text lets nobody else go on.
        plain = codec.feed(piece)
        yield from (plain[at : at + PIECE] for at in range(0, len(plain), PIECE))
    if codec.finish() != "complete":
        raise UndecodableBody


def _large_body(request: Request) -> BodyFile:
    if request.file is None:
        raise ValueError("there is no large body")
    return request.file


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
            sent = decoded_request(asked) if request.coding else asked
            request = replace(request, file=await self._sent(sent))
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

    async def _sent(self, asked: Request) -> BodyFile:
        """The body of a request, in the store."""
        redacting = _BodyRedactor(self._redactor, asked.headers)
        digester = BodyDigester(asked.fields)
        kept = await self._keep(_digested(digester, redacting.redact(_pieces_of(asked))))
        described = replace(digester.finish(), placeholders=redacting.placeholders)
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
    """Takes the secrets out of a body and moves its chunk ends accordingly.

    If it `recalls`, the values of recorded placeholders are looked for as well.
    """

    def __init__(
        self,
        redactor: Redactor,
        headers: Headers,
        arrivals: ChunkTimes = NO_CHUNK_TIMES,
        *,
        recalls: bool = False,
    ) -> None:
        self._redactor = redactor
        self._window = redactor.stream(find_header(headers, b"content-type") or b"")
        self._recall = redactor.recall() if recalls else NO_RECALL
        self._recalled: list[Secret] = []
        self._arrivals = arrivals

    def redact(self, source: Iterable[bytes]) -> Generator[bytes]:
        for piece in source:
            self._recalled += self._recall.feed(piece)
            if out := self._window.feed(piece):
                yield out
        self._recalled += self._recall.finish()
        if out := self._window.finish():
            yield out

    @property
    def has_replaced(self) -> bool:
        return bool(self._window.replaced)

    @property
    def taught(self) -> list[Secret]:
        """What is not replaced everywhere yet."""
        return self._redactor.taught_by(self._window.secrets, self._recalled)

    @property
    def placeholders(self) -> tuple[str, ...]:
        """Those of the replaced secrets, as they are in a text."""
        secrets = self._window.secrets
        return tuple(sorted({self._redactor.shown(secret) for secret in secrets}))

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
