"""Content codings, taken off within bounds, whole or piece by piece."""

import gzip
import tracemalloc
import zlib
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.http.content_codings import (
    FREE,
    MAX_DECODED,
    MAX_RATIO,
    MIB,
    Ending,
    coding_of,
    decode,
    decoder,
    salvage,
)
from tests.core.codings import PACKERS, br, bulk, flushed, pack, raw_deflate, zst

CODINGS = [*PACKERS, b"gzip, br", b"zstd, gzip", b"br, deflate, zstd"]
TEXT = b'data: {"delta": "some text that was cut on its way"}\n\n' * 3


def piecewise(coding: bytes, pieces: list[bytes]) -> tuple[bytes, Ending]:
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
        (b"deflate", raw_deflate(TEXT)) if coding == b"raw" else (coding, pack(coding, TEXT))
    )
    for cut in range(1, len(packed)):
        plain, ending = piecewise(coding, [packed[:cut]])

        assert ending == "cut"
        assert TEXT.startswith(plain)
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
    packed = pack(coding, TEXT)
    broken = packed[:8] + noise + packed[8 + len(noise) :]

    assert decode(coding, broken) == (TEXT if broken == packed else None)


@pytest.mark.parametrize("coding", [b"gzip", b"deflate", b"br"])
def test_what_follows_the_end_makes_a_body_bad(coding: bytes) -> None:
    assert piecewise(coding, [pack(coding, TEXT), b"more"])[1] == "bad"
    assert piecewise(coding, [pack(coding, TEXT) + b"more"])[1] == "bad"


@pytest.mark.parametrize(
    "coding", [b"nonsense", b"gzip, nonsense", b"gzip,gzip,gzip,gzip,gzip", b"dcb"]
)
def test_a_coding_that_is_not_known_here_gives_nothing(coding: bytes) -> None:
    assert decoder(coding) is None
    assert decode(coding, gzip.compress(b"text")) is None
    assert salvage(coding, gzip.compress(b"text")) == b""


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
    assert salvage(b"gzip", bytes(packed)).startswith(b"first ")
    assert salvage(b"br", br(TEXT)) == TEXT


@pytest.mark.parametrize("coding", [*PACKERS, b"gzip, br"])
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


def test_a_coding_inside_another_is_bounded_too() -> None:
    inner = gzip.compress(bytes(100 * MIB))

    assert decode(b"gzip, gzip", gzip.compress(inner)) is None


def test_members_share_one_bound() -> None:
    member = gzip.compress(bulk(MAX_DECODED // 2), 1)

    assert decode(b"gzip", member * 2) is not None
    assert decode(b"gzip", member * 2 + gzip.compress(b"x")) is None


@pytest.mark.parametrize("coding", PACKERS)
def test_a_bomb_costs_no_more_memory_than_the_bound(coding: bytes) -> None:
    bomb = pack(coding, bytes(200 * MIB))
    tracemalloc.start()
    try:
        assert decode(coding, bomb) is None
        assert salvage(coding, bomb).strip(b"\0") == b""
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 3 * MAX_DECODED


@pytest.mark.parametrize(
    ("window", "ending"), [(8 * MIB, "cut"), (8 * MIB + 1, "bad"), (2**40, "bad")]
)
def test_a_window_larger_than_the_coding_allows_is_refused(window: int, ending: Ending) -> None:
    # A frame's header alone asks for it: one segment, and eight bytes for its size.
    header = b"\x28\xb5\x2f\xfd\xe0" + window.to_bytes(8, "little")

    assert piecewise(b"zstd", [header]) == (b"", ending)


def test_very_many_empty_members_are_read_in_time_linear_in_their_number() -> None:
    assert decode(b"gzip", gzip.compress(b"") * 400_000 + gzip.compress(b"end")) == b"end"


def test_several_fields_name_one_stack_of_codings() -> None:
    headers = ((b"Content-Encoding", b"gzip"), (b"X", b"y"), (b"content-encoding", b"br"))

    assert coding_of(headers) == b"gzip, br"
    assert coding_of(headers[1:2]) == b""
