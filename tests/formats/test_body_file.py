"""A body beside the cassette: the reference to it, and the pieces it came in."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.agenttape import key
from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import BodyFile, Cuts, PartDigest, Request, Response, ResponseHead
from tapeway.formats.errors import FormatFault
from tapeway.formats.native import document
from tests.formats.exchanges import times
from tests.stores.recordings import HEAD

digests = st.from_regex(r"[0-9a-f]{64}", fullmatch=True)
maybe_text = st.none() | st.text(st.characters(codec="utf-8"), max_size=5)
parts = st.builds(PartDigest, maybe_text, maybe_text, maybe_text, digests)
files = st.builds(
    BodyFile,
    path=st.just(""),
    size=st.integers(1, 2**40),
    digest=digests,
    parts=st.none() | st.lists(parts, max_size=3).map(tuple),
)
pieces = st.lists(st.tuples(times, st.integers(1, 2**20)), min_size=2, max_size=20)


def interaction(request: BodyFile | None, response: Response) -> Interaction:
    headers = ((b"content-type", b"application/octet-stream"),)
    asked = Request("openai", "POST", "/v1/files", headers, b"", "https://h", request)
    return Interaction(0, asked, response, match_key=key.of_http(asked))


def through_the_file(recorded: Interaction) -> Interaction:
    (found,) = document.load(document.save(StoredCassette(HEAD, (recorded,)))).interactions
    assert isinstance(found, Interaction)
    return found


def answer(cuts: Cuts, framing: Any = "chunked", digest: str = "0" * 64) -> Response:
    file = BodyFile("", cuts.total, digest)
    return Response(ResponseHead(200, "OK", (), framing), file=file, cuts=cuts)


@given(files)
def test_the_reference_to_a_request_comes_back_as_it_was(file: BodyFile) -> None:
    recorded = interaction(file, answer(Cuts([(0.0, 3)]), "length"))

    assert through_the_file(recorded) == recorded


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_an_empty_file_is_no_body(framing: str) -> None:
    recorded = interaction(BodyFile("", 0, "1" * 64), answer(Cuts(), framing))

    found = through_the_file(recorded)

    assert (found.request.file, found.request.body) == (None, b"")
    assert (found.response.file, found.response.chunks) == (None, ())


@given(pieces, st.sampled_from(["chunked", "close"]))
def test_the_pieces_of_an_answer_come_back_as_they_were(
    pairs: list[tuple[float, int]], framing: str
) -> None:
    recorded = interaction(None, answer(Cuts(pairs), framing))

    assert through_the_file(recorded) == recorded


def test_very_many_pieces_stand_as_one_text() -> None:
    recorded = interaction(None, answer(Cuts((at / 8, at % 7 + 1) for at in range(20_000))))

    written = document.save(StoredCassette(HEAD, (recorded,)))

    packed = json.loads(written)["interactions"][0]["response"]["chunks"]
    assert packed.startswith("0.0+1 0.125+2 0.25+3 ")
    assert through_the_file(recorded) == recorded


def test_a_body_under_a_length_came_when_its_last_piece_came() -> None:
    recorded = interaction(None, answer(Cuts([(1.0, 3), (2.5, 4)]), "length"))

    assert through_the_file(recorded).response.cuts == Cuts([(2.5, 7)])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"body_file": {"sha256": "x" * 64, "size": 4}}, "sha256: must be 64 hexadecimal digits"),
        ({"body_file": {"sha256": "../" + "a" * 61, "size": 4}}, "must be 64 hexadecimal digits"),
        ({"body_file": {"sha256": "a" * 64}}, "the field 'size' is missing"),
        ({"body_file": {"sha256": "a" * 64, "size": -1}}, "size: must be a whole number"),
        ({"body_file": {"sha256": "a" * 64, "size": 4, "path": "x"}}, "there is no such field"),
        ({"body_file": "a" * 64}, "body_file: must be an object"),
        ({"text": "four"}, "stands there twice, as 'text' and 'body_file'"),
        ({"chunks": [[1, 2], [1, 3]]}, "they are 5 bytes together, the file has 4"),
        ({"chunks": "1+2 1+2x"}, "must be milliseconds[+]bytes at '1[+]2x'"),
        ({"chunks": "1+2 1+2", "framing": "length"}, "needs a 'framing' of chunked or close"),
    ],
)
def test_a_mistake_in_it_is_named(change: dict[str, Any], said: str) -> None:
    recorded = interaction(None, answer(Cuts([(1.0, 2), (2.0, 2)])))
    cassette = json.loads(document.save(StoredCassette(HEAD, (recorded,))))
    cassette["interactions"][0]["response"] |= change

    with pytest.raises(FormatFault, match=said):
        document.load(json.dumps(cassette).encode())
