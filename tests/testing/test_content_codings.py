import sys
import zlib
from collections.abc import Callable

import brotli  # type: ignore[import-untyped]
import pytest

from tapeway.testing.answer import StandInAnswer, stream
from tapeway.testing.content_codings import CODINGS, encode_answer

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

EVENTS = [b"data: %d\n\n" % number * 9 for number in range(9)]
ANSWER = stream((("Content-Type", "text/event-stream"),), EVENTS)

DECODERS: dict[str, Callable[[], Callable[[bytes], bytes]]] = {
    "gzip": lambda: zlib.decompressobj(31).decompress,
    "deflate": lambda: zlib.decompressobj(15).decompress,
    "br": lambda: brotli.Decompressor().process,
    "zstd": lambda: zstd.ZstdDecompressor().decompress,
}


@pytest.mark.parametrize("coding", CODINGS)
def test_each_write_can_be_decoded_as_soon_as_it_has_come(coding: str) -> None:
    packed = encode_answer(ANSWER, CODINGS, coding)
    decode = DECODERS[coding]()

    assert [decode(write) for write in packed.writes] == list(ANSWER.writes)
    assert packed.headers[-2:] == (("Content-Encoding", coding), ("Vary", "Accept-Encoding"))


def test_the_first_offered_coding_that_is_accepted_is_taken() -> None:
    packed = encode_answer(ANSWER, ("zstd", "br", "gzip"), "gzip, deflate, br;q=0.9")

    assert ("Content-Encoding", "br") in packed.headers


@pytest.mark.parametrize("accepted", ["", "identity", "gzipped"])
def test_no_coding_is_used_unasked(accepted: str) -> None:
    assert encode_answer(ANSWER, CODINGS, accepted) is ANSWER


def test_an_answer_without_a_body_has_no_coding() -> None:
    empty = StandInAnswer(204, (), ())

    assert encode_answer(empty, CODINGS, "gzip") is empty
