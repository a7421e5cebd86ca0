"""Content codings are taken off within bounds, and a cassette holds the readable body."""

import gzip
import zlib
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.http.content_codings import (
    FREE,
    MAX_DECODED,
    MAX_RATIO,
    MIB,
    BodyEnd,
    content_coding,
    decode,
    decode_leniently,
    decoder,
    pieces_beyond_bounds,
    readable_request,
    readable_response,
)
from tapeway.core.model.messages import Headers, Request, Response, ResponseHead
from tests.support.coded_bodies import (
    PACKERS,
    br,
    bulk,
    flushed,
    pack,
    raw_deflate,
    zst,
    zst_with_checksum,
)
from tests.support.memory import measured_memory
from tests.support.thoroughness import step

CODINGS = [*PACKERS, b"gzip, br", b"zstd, gzip", b"br, deflate, zstd"]
EVENTS = b'data: {"delta": "some text that was cut on its way"}\n\n' * 3
TEXT = b'{"text": "hello, hello, hello"}'


def piecewise(coding: bytes, pieces: list[bytes]) -> tuple[bytes, BodyEnd]:
    made = decoder(coding)
    assert made is not None
    plain = b"".join(map(made.feed, pieces))
    return plain, made.finish()


@given(body=st.binary())
@pytest.mark.parametrize(
    ("coding", "packer"),
    [
        (b"gzip", gzip.compress),
        (b" X-GZIP ", gzip.compress),
        (b"deflate", zlib.compress),
        (b"Deflate", raw_deflate),
        (b"BR", br),
        (b"zstd", zst),
        (b"identity, gzip", gzip.compress),
        (b"identity", bytes),
        (b"", bytes),
    ],
)
def test_a_coding_is_taken_off(
    coding: bytes, packer: Callable[[bytes], bytes], body: bytes
) -> None:
    assert decode(coding, packer(body)) == body


@given(body=st.binary(), data=st.data())
@pytest.mark.parametrize("coding", CODINGS)
def test_however_a_body_is_split_the_same_comes_out(
    coding: bytes, body: bytes, data: st.DataObject
) -> None:
    packed = pack(coding, body)
    cuts = data.draw(st.lists(st.integers(0, len(packed)), max_size=8).map(sorted))
    pieces = [packed[start:end] for start, end in pairwise([0, *cuts, len(packed)])]

    assert piecewise(coding, pieces) == (body, "complete")
    assert decode(coding, packed) == body


@pytest.mark.parametrize("coding", [*CODINGS, b"raw"])
def test_a_body_cut_at_any_byte_is_told_from_a_whole_one(coding: bytes) -> None:
    coding, packed = (
        (b"deflate", raw_deflate(EVENTS)) if coding == b"raw" else (coding, pack(coding, EVENTS))
    )
    for cut in range(1, len(packed)):
        plain, ending = piecewise(coding, [packed[:cut]])

        assert ending == "cut"
        assert EVENTS.startswith(plain)
        assert decode(coding, packed[:cut]) is None


@pytest.mark.parametrize("coding", PACKERS)
def test_what_a_service_flushed_can_be_read_when_it_has_come(coding: bytes) -> None:
    events = [b"data: %d\n\n" % number for number in range(20)]
    made = decoder(coding)
    assert made is not None

    *wire, end = flushed(coding, events)

    assert [made.feed(piece) for piece in wire] == events
    assert made.finish() == "cut"
    assert made.feed(end) == b""
    assert made.finish() == "complete"


@pytest.mark.parametrize("coding", [b"gzip", b"deflate"])
@given(noise=st.binary(min_size=4, max_size=40))
def test_a_body_whose_checksum_is_wrong_gives_nothing(coding: bytes, noise: bytes) -> None:
    packed = pack(coding, EVENTS)
    broken = packed[:8] + noise + packed[8 + len(noise) :]

    assert decode(coding, broken) == (EVENTS if broken == packed else None)


@pytest.mark.parametrize("coding", [b"gzip", b"deflate", b"br"])
def test_what_follows_the_end_makes_a_body_bad(coding: bytes) -> None:
    assert piecewise(coding, [pack(coding, EVENTS), b"more"])[1] == "bad"
    assert piecewise(coding, [pack(coding, EVENTS) + b"more"])[1] == "bad"


@pytest.mark.parametrize(
    "coding", [b"nonsense", b"gzip, nonsense", b"gzip,gzip,gzip,gzip,gzip", b"dcb"]
)
def test_a_coding_that_is_not_known_here_gives_nothing(coding: bytes) -> None:
    assert decoder(coding) is None
    assert decode(coding, gzip.compress(b"text")) is None
    assert decode_leniently(coding, gzip.compress(b"text")) == b""


def test_an_empty_body_is_whole_under_any_coding() -> None:
    assert [decode(coding, b"") for coding in CODINGS] == [b""] * len(CODINGS)


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=5))
@pytest.mark.parametrize(("coding", "packer"), [(b"gzip", gzip.compress), (b"zstd", zst)])
def test_members_in_a_row_are_one_body(
    coding: bytes, packer: Callable[[bytes], bytes], pieces: list[bytes]
) -> None:
    packed = list(map(packer, pieces))

    assert decode(coding, b"".join(packed)) == b"".join(pieces)
    assert piecewise(coding, packed) == (b"".join(pieces), "complete")


def test_a_second_member_that_is_cut_gives_nothing() -> None:
    assert decode(b"gzip", gzip.compress(b"whole") + gzip.compress(b"cut off")[:-1]) is None


@pytest.mark.parametrize("body", [b"plain", b"\x1f\x8b", b"\x00" * 40])
def test_a_body_that_is_not_in_its_coding_gives_nothing(body: bytes) -> None:
    assert decode(b"gzip", body) is None


def test_a_broken_body_shows_what_came_before_the_break() -> None:
    packed = bytearray(b"".join(flushed(b"gzip", [b"first ", b"second ", b"third "])))
    packed[-9] ^= 0xFF

    assert decode(b"gzip", bytes(packed)) is None
    assert decode_leniently(b"gzip", bytes(packed)).startswith(b"first ")
    assert decode_leniently(b"br", br(EVENTS)) == EVENTS


TEXT = b"some text, " * 5000 + b"and its end"
READABLE: dict[str, tuple[bytes, bytes]] = {
    "gzip with a wrong checksum": (b"gzip", gzip.compress(TEXT)[:-8] + bytes(8)),
    "gzip without a checksum": (b"gzip", gzip.compress(TEXT)[:-8]),
    "gzip with padding": (b"gzip", gzip.compress(TEXT) + bytes(512)),
    "gzip with text behind it": (b"gzip", gzip.compress(TEXT) + b"more"),
    "gzip in a header of zlib": (b"gzip", zlib.compress(TEXT)),
    "deflate with a wrong checksum": (b"deflate", zlib.compress(TEXT)[:-4] + b"abcd"),
    "deflate without a checksum": (b"deflate", zlib.compress(TEXT)[:-4]),
    "deflate with a wrong header": (b"deflate", b"\x78\x00" + zlib.compress(TEXT)[2:]),
    "deflate with more behind it": (b"deflate", zlib.compress(TEXT) + b"more"),
    "bare deflate with more behind it": (b"deflate", raw_deflate(TEXT) + b"more"),
    "deflate in a header of gzip": (b"deflate", gzip.compress(TEXT)),
    "brotli with more behind it": (b"br", br(TEXT) + b"more"),
    "zstd with a wrong checksum": (b"zstd", zst_with_checksum(TEXT)[:-4] + b"abcd"),
    "zstd with more behind it": (b"zstd", zst(TEXT) + b"more"),
    "one broken coding in another": (b"gzip, br", br(gzip.compress(TEXT)[:-8]) + b"more"),
}


@pytest.mark.parametrize("kind", READABLE)
def test_a_broken_body_that_clients_read_is_read_as_far_as_it_goes(kind: str) -> None:
    coding, body = READABLE[kind]

    assert decode(coding, body) is None
    assert decode_leniently(coding, body) == TEXT


@pytest.mark.parametrize("coding", PACKERS)
def test_a_body_beyond_the_bounds_is_read_piece_by_piece(coding: bytes) -> None:
    body = bytes(8 * FREE) + b"the end"

    assert b"".join(pieces_beyond_bounds(coding, pack(coding, body))) == body
    assert list(pieces_beyond_bounds(coding, pack(coding, TEXT))) == []


@pytest.mark.parametrize("coding", [b"gzip, br", *PACKERS][:: step(3)])
def test_a_body_that_grows_to_the_bound_is_read_and_one_byte_more_is_not(coding: bytes) -> None:
    body = bulk(MAX_DECODED + 1)

    assert decode(coding, pack(coding, body[:-1])) == body[:-1]
    assert decode(coding, pack(coding, body)) is None
    assert piecewise(coding, [pack(coding, body)])[1] == "large"


@pytest.mark.parametrize("coding", PACKERS)
def test_a_body_that_grows_too_many_times_its_size_is_not_read(coding: bytes) -> None:
    assert decode(coding, pack(coding, bytes(FREE))) == bytes(FREE)
    swollen = pack(coding, bytes(8 * FREE))
    assert len(swollen) * MAX_RATIO < 8 * FREE

    assert piecewise(coding, [swollen])[1] == "large"
    assert decode(coding, swollen) is None


@pytest.mark.slow
def test_a_coding_inside_another_is_bounded_too() -> None:
    inner = gzip.compress(bytes(100 * MIB))

    assert decode(b"gzip, gzip", gzip.compress(inner)) is None


def test_members_share_one_bound() -> None:
    member = gzip.compress(bulk(MAX_DECODED // 2), 1)

    assert decode(b"gzip", member * 2) is not None
    assert decode(b"gzip", member * 2 + gzip.compress(b"x")) is None


@pytest.mark.parametrize("coding", [*PACKERS][:: step(2)])
def test_a_bomb_costs_no_more_memory_than_the_bound(coding: bytes) -> None:
    bomb = pack(coding, bytes(200 * MIB))
    with measured_memory() as memory:
        assert decode(coding, bomb) is None
        assert decode_leniently(coding, bomb).strip(b"\0") == b""

    assert memory.peak < 3 * MAX_DECODED


@pytest.mark.parametrize(
    ("window", "ending"), [(8 * MIB, "cut"), (8 * MIB + 1, "bad"), (2**40, "bad")]
)
def test_a_window_larger_than_the_coding_allows_is_refused(window: int, ending: BodyEnd) -> None:
    # A frame's header alone asks for it: one segment, and eight bytes for its size.
    header = b"\x28\xb5\x2f\xfd\xe0" + window.to_bytes(8, "little")

    assert piecewise(b"zstd", [header]) == (b"", ending)


@pytest.mark.slow
def test_very_many_empty_members_are_read_in_time_linear_in_their_number() -> None:
    assert decode(b"gzip", gzip.compress(b"") * 400_000 + gzip.compress(b"end")) == b"end"


def test_several_fields_name_one_stack_of_codings() -> None:
    headers = ((b"Content-Encoding", b"gzip"), (b"X", b"y"), (b"content-encoding", b"br"))

    assert content_coding(headers) == b"gzip, br"
    assert content_coding(headers[1:2]) == b""


def response(coding: bytes, *pieces: bytes, status: int = 200, more: Headers = ()) -> Response:
    headers = ((b"Content-Type", b"application/json"), (b"Content-Encoding", coding), *more)
    chunks = [(piece, 10.0 * at) for at, piece in enumerate(pieces, 1)]
    head = ResponseHead(status, "OK", headers, "chunked")
    return Response.of_chunks(head, chunks, latency_ms=99.0)


@pytest.mark.parametrize("coding", [*PACKERS, b"gzip, br"])
def test_a_coded_response_is_held_plain(coding: bytes) -> None:
    held = readable_response(response(coding, pack(coding, TEXT)), "POST")

    assert (held.pieces(), held.at_ms) == ([TEXT], 10.0)
    assert held.headers == ((b"Content-Type", b"application/json"),)
    assert (held.status, held.head.framing, held.latency_ms) == (200, "chunked", 99.0)


@pytest.mark.parametrize("coding", PACKERS)
def test_a_coded_stream_keeps_its_chunks_and_when_they_came(coding: bytes) -> None:
    events = [b"data: %d\n\n" % number for number in range(5)]

    held = readable_response(response(coding, *flushed(coding, events)), "POST")

    assert held.pieces() == events
    assert [*held.chunk_times.times] == [10.0 * at for at in range(1, 6)]


def test_a_chunk_that_holds_nothing_readable_yet_joins_the_next() -> None:
    packed = pack(b"gzip", TEXT)

    held = readable_response(response(b"gzip", packed[:3], packed[3:10], packed[10:]), "GET")

    assert (held.pieces(), held.at_ms) == ([TEXT], 30.0)


@given(body=st.binary(min_size=1), data=st.data())
@pytest.mark.parametrize("coding", PACKERS)
def test_however_it_was_cut_on_the_wire_the_body_is_whole_and_no_chunk_empty(
    coding: bytes, body: bytes, data: st.DataObject
) -> None:
    packed = pack(coding, body)
    cuts = data.draw(st.lists(st.integers(0, len(packed)), max_size=8).map(sorted))
    wire = [packed[start:end] for start, end in pairwise([0, *cuts, len(packed)])]
    came = response(coding, *wire)

    held = readable_response(came, "GET")

    assert held.body == body
    assert all(held.pieces())
    assert {*held.arrivals().times} <= {*came.arrivals().times}


def test_digests_of_the_coded_form_go_and_all_else_stays() -> None:
    stays = ((b"ETag", b'W/"1"'), (b"Vary", b"Accept-Encoding"), (b"X-Request-Id", b"r"))
    goes = (
        (b"Content-MD5", b"x"),
        (b"digest", b"sha-256=x"),
        (b"Content-Digest", b"sha-256=:x:"),
        (b"Repr-Digest", b"sha-256=:x:"),
    )

    held = readable_response(response(b"gzip", pack(b"gzip", TEXT), more=stays + goes), "GET")

    assert held.headers == ((b"Content-Type", b"application/json"), *stays)


def test_codings_named_in_several_fields_are_all_taken_off() -> None:
    more = ((b"content-encoding", b"br"),)

    held = readable_response(response(b"gzip", pack(b"gzip, br", TEXT), more=more), "GET")

    assert held.body == TEXT
    assert held.headers == ((b"Content-Type", b"application/json"),)


@pytest.mark.parametrize(
    ("came", "method"),
    [
        (response(b"gzip", pack(b"gzip", TEXT), status=206), "GET"),
        (response(b"gzip"), "HEAD"),
        (response(b"gzip"), "GET"),
        (response(b"gzip", status=304), "GET"),
        (response(b"unheard-of", TEXT), "GET"),
        (response(b"gzip", pack(b"gzip", TEXT)[:-1]), "GET"),
        (response(b"gzip", b"not packed at all"), "GET"),
        (response(b"gzip", pack(b"gzip", bytes(40_000_000))), "GET"),
        (Response(ResponseHead(200), TEXT), "GET"),
    ],
    ids=["a part", "HEAD", "no body", "304", "unknown", "cut", "broken", "a bomb", "plain"],
)
def test_what_cannot_be_read_is_held_as_it_came(came: Response, method: str) -> None:
    assert readable_response(came, method) is came


def test_a_response_that_broke_off_is_held_as_far_as_it_can_be_read() -> None:
    wire = flushed(b"gzip", [b"first ", b"second "])
    came = response(b"gzip", wire[0], wire[1])

    held = readable_response(came, "GET", cut=True)

    assert held.pieces() == [b"first ", b"second "]
    assert [*held.chunk_times.times] == [10.0, 20.0]
    assert (
        readable_response(response(b"gzip", b"not packed"), "GET", cut=True).body == b"not packed"
    )


@pytest.mark.parametrize("coding", [*PACKERS, b"gzip, br"])
def test_a_coded_request_is_held_plain(coding: bytes) -> None:
    fields = ((b"content-type", b"text/plain"), (b"content-encoding", coding))
    request = Request("r", "POST", "/", fields, pack(coding, TEXT))

    held = readable_request(request)

    assert held == replace(request, headers=fields[:1], body=TEXT)
    cut = replace(request, body=request.body[:-1])
    assert readable_request(cut) is cut
