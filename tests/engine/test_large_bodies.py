"""A large body is stored as one in memory is: decoded, without secrets, with the same chunk ends."""

import gzip
import hashlib
import random
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tapeway.body_files import Spool, read_body
from tapeway.core.http.content_codings import MAX_DECODED, decoded_request, readable_response
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import (
    NO_CHUNK_TIMES,
    ChunkTimes,
    Headers,
    Request,
    Response,
    ResponseHead,
)
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.leak_guard import LeakGuard
from tapeway.core.redaction.redactor import Redactor
from tapeway.core.redaction.spans import PLACEHOLDER
from tapeway.engine.large_bodies import LargeBodyStorage, digest_large_body, digest_redacted
from tapeway.errors import StoreError
from tapeway.stores.memory import MemoryStore

KEY = b"tok-0123456789-abcdefghij"
SECRETS = (Secret("authorization", KEY),)
OFFERED: Headers = ((b"accept-encoding", b"gzip"),)
OCTETS: Headers = ((b"content-type", b"application/octet-stream"),)

shards = st.sampled_from([KEY, KEY[:9], KEY[9:], KEY * 2, b"x" * 3000, b"text "]) | st.binary(
    max_size=20
)
bodies = st.lists(shards, max_size=12).map(b"".join)


def make_storage(*, guard: LeakGuard | None = None, limit: int = 2**20) -> LargeBodyStorage:
    guard = guard or LeakGuard(SECRETS)
    return LargeBodyStorage(MemoryStore(), "x", Redactor("salt", SECRETS), guard, limit)


def split(body: bytes, ends: list[int]) -> list[bytes]:
    places = sorted({0, len(body), *(border % (len(body) + 1) for border in ends)})
    return [body[start:end] for start, end in pairwise(places)]


async def stored_response(
    pieces: list[bytes], headers: Headers = OCTETS, *, limit: int = 2**20, offers: bool = True
) -> Response:
    """An answer of these chunks, brought into a store from a file."""
    spool = Spool(None)
    for piece in pieces:
        await spool.add(piece)
    cuts = ChunkTimes((float(at), len(piece)) for at, piece in enumerate(pieces))
    head = ResponseHead(200, "OK", headers, "chunked")
    response = Response(head, file=await spool.finish()).with_arrivals(cuts)
    asked = Request("openai", "GET", "/", OFFERED if offers else ())
    return (await make_storage(limit=limit).keep(asked, Interaction(0, asked, response))).response


def response_in_memory(pieces: list[bytes], headers: Headers = OCTETS) -> Response:
    chunks = [(piece, float(at)) for at, piece in enumerate(pieces)]
    response = Response.of_chunks(ResponseHead(200, "OK", headers, "chunked"), chunks)
    return Redactor("salt", SECRETS).response(readable_response(response, "GET"))


async def assert_same(found: Response, expected: Response) -> None:
    assert found.file is not None
    body = await read_body(found.file)
    assert body == expected.body
    assert found.file.digest == hashlib.sha256(body).hexdigest()
    assert found.arrivals().total == found.file.size == len(body)
    assert (found.at_ms, found.chunk_times) == (expected.at_ms, expected.chunk_times)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(bodies.filter(bool), st.lists(st.integers(0, 10_000), max_size=8))
async def test_a_large_body_is_stored_as_a_small_one_is(body: bytes, ends: list[int]) -> None:
    pieces = split(body, ends)

    await assert_same(await stored_response(pieces), response_in_memory(pieces))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(bodies.filter(bool), st.lists(st.integers(0, 10_000), max_size=8))
async def test_an_encoded_body_is_stored_decoded_as_a_small_one_is(
    body: bytes, ends: list[int]
) -> None:
    headers = (*OCTETS, (b"Content-Encoding", b"gzip"))
    pieces = split(gzip.compress(body), ends)

    found = await stored_response(pieces, headers)

    await assert_same(found, response_in_memory(pieces, headers))
    assert found.headers == OCTETS


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(bodies.filter(bool), st.lists(st.integers(0, 10_000), max_size=8))
async def test_an_encoded_body_whose_coding_was_not_offered_stays_encoded_without_secrets_in_it(
    body: bytes, ends: list[int]
) -> None:
    headers = (*OCTETS, (b"Content-Encoding", b"gzip"), (b"Content-MD5", b"abc"))
    pieces = split(gzip.compress(body), ends)

    found = await stored_response(pieces, headers, offers=False)

    if KEY in body:
        await assert_same(found, response_in_memory(pieces, headers))
        assert found.headers == OCTETS
    else:
        assert found.file is not None
        assert await read_body(found.file) == b"".join(pieces)
        assert found.headers == headers


async def test_a_body_that_decodes_to_nothing_is_no_large_body() -> None:
    headers = (*OCTETS, (b"Content-Encoding", b"gzip"))

    found = await stored_response([gzip.compress(b"")] * 3, headers)

    assert (found.file, found.arrivals(), found.headers) == (None, NO_CHUNK_TIMES, OCTETS)


async def test_a_body_that_exceeds_the_limit_when_decoded_is_stored_encoded() -> None:
    coded = gzip.compress(b"x" * 10_000)
    headers = (*OCTETS, (b"Content-Encoding", b"gzip"))

    found = await stored_response([coded], headers, limit=5000)

    assert found.file is not None
    assert await read_body(found.file) == coded
    assert found.headers == headers


@pytest.mark.parametrize("text", [KEY, b"sk-proj-Qz7hT2kP9xL4vT8wR1sY6nB3cH5jD0gA7eU2iO9p"])
@pytest.mark.parametrize("behind", [b"more", bytes(100)])
async def test_a_broken_body_with_a_secret_is_stored_as_what_it_says(
    text: bytes, behind: bytes
) -> None:
    pieces = split(gzip.compress(b"x " * 3000 + text + b" y" * 3000) + behind, [40, 60])
    headers = (*OCTETS, (b"Content-Encoding", b"gzip"))

    found = await stored_response(pieces, headers)

    assert found.file is not None
    assert (
        PLACEHOLDER.sub(b"*", await read_body(found.file))
        == b"x " * 3000 + b"* " + b"y " * 2999 + b"y"
    )
    assert found.headers == OCTETS


async def test_a_broken_body_without_a_secret_stays_as_it_came() -> None:
    coded = gzip.compress(b"x " * 3000) + b"more"
    headers = (*OCTETS, (b"Content-Encoding", b"gzip"))

    found = await stored_response([coded], headers)

    assert found.file is not None
    assert await read_body(found.file) == coded


async def test_a_credential_that_is_not_taken_out_is_not_kept() -> None:
    other = Secret("x-api-key", b"another-0123456789")
    spool = Spool(None)
    await spool.add(b"before another-0123456789 after")
    file = await spool.finish()
    response = Response(ResponseHead(200), file=file)
    asked = Request("openai", "GET", "/")

    with pytest.raises(StoreError, match="'x-api-key' would still be in") as caught:
        await make_storage(guard=LeakGuard([other])).keep(asked, Interaction(0, asked, response))

    assert "another-0123456789" not in caught.value.message


async def test_a_compressed_request_may_hold_more_than_is_decoded_in_memory(tmp_path: Path) -> None:
    plain = random.Random(7).randbytes(2**18) * (1 + MAX_DECODED // 2**18)
    spool = Spool(str(tmp_path))
    await spool.add(gzip.compress(plain, 1))
    headers = (*OCTETS, (b"Content-Encoding", b"gzip"))
    asked = Request("openai", "POST", "/", headers, file=await spool.finish())

    known = await digest_large_body(asked)

    assert known.coding == b"gzip"
    assert known.sent.size == len(plain) > MAX_DECODED


async def test_a_compressed_request_is_known_by_its_text_and_as_earlier_versions_kept_it(
    tmp_path: Path,
) -> None:
    spool, coded = Spool(str(tmp_path)), gzip.compress(b"with " + KEY + b" in it")
    await spool.add(coded)
    headers = (*OCTETS, (b"Content-Encoding", b"gzip"))
    asked = Request("openai", "POST", "/", headers, file=await spool.finish())

    sent = await digest_large_body(asked)
    known, others, _ = await digest_redacted(decoded_request(asked), Redactor("salt", SECRETS), ())

    assert sent.coding == b"gzip"
    assert sent.sent.size == known.size == len(gzip.decompress(coded))
    assert hashlib.sha256(coded).hexdigest() in [other.digest for other in others]


async def test_a_request_that_is_not_in_its_coding_is_known_as_it_came(tmp_path: Path) -> None:
    for coding, body in (
        (b"gzip", b"no gzip"),
        (b"gzip", gzip.compress(b"cut")[:-1]),
        (b"x", b"y"),
    ):
        spool = Spool(str(tmp_path))
        await spool.add(body)
        headers = (*OCTETS, (b"Content-Encoding", coding))
        asked = Request("openai", "POST", "/", headers, file=await spool.finish())
        digests = await digest_large_body(asked)
        assert (digests.coding, digests.sent.digest) == (b"", hashlib.sha256(body).hexdigest())


async def test_a_request_is_known_by_what_will_be_kept_of_it(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    await spool.add(b"with " + KEY + b" in it")
    asked = Request("openai", "POST", "/", OCTETS, file=await spool.finish())
    known, (older,), _ = await digest_redacted(asked, Redactor("salt", SECRETS), ())
    plain, others, _ = await digest_redacted(asked, Redactor("salt"), ())
    sent = (await digest_large_body(asked)).sent
    redacted = Request("openai", "POST", "/", OCTETS, file=known)

    done = await make_storage().keep(asked, Interaction(0, redacted, Response(ResponseHead(200))))

    assert done.request.file is not None
    assert (done.request.file.size, done.request.file.digest) == (known.size, known.digest)
    assert sent == plain != known
    assert others == ()
    assert known.size == sent.size != older.size
    assert KEY not in await read_body(done.request.file)
