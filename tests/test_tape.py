"""What was taken in can be read while the rest is still to come, piece by piece as it came."""

from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.model import ResponseChunk, ResponseHead
from tapeway.tape import Tape


def tape(*pieces: bytes, framing: str = "chunked") -> Tape:
    made = Tape(ResponseHead(200, framing=framing))  # type: ignore[arg-type]
    for at, piece in enumerate(pieces):
        made.add(ResponseChunk(piece, float(at)))
    return made


def test_a_body_that_nobody_cut_becomes_one_piece_that_came_with_its_last() -> None:
    assert tape(b"one", b"two", framing="length").finish(5.0).chunks == (
        ResponseChunk(b"onetwo", 1.0),
    )
    assert tape(b"one", b"two").finish(5.0).chunks == (
        ResponseChunk(b"one", 0.0),
        ResponseChunk(b"two", 1.0),
    )


def test_it_ends_with_how_long_it_took_and_how_it_ended() -> None:
    response = tape(b"x").finish(7.5, "marked")

    assert (response.latency_ms, response.verdict) == (7.5, "marked")


@given(st.lists(st.binary(max_size=5)), st.data())
def test_reading_on_from_each_piece_s_end_gives_the_whole(
    pieces: list[bytes], data: st.DataObject
) -> None:
    made, position, read = tape(*pieces), 0, []
    while position < made.size:
        end = data.draw(st.integers(position + 1, made.size))
        read.append(made.read(position, end))
        position += len(read[-1])

    assert b"".join(read) == b"".join(pieces) == made.finish(0).body


def test_a_read_goes_no_further_than_its_chunk() -> None:
    made = tape(b"one", b"", b"two")

    assert [made.read(0, 6), made.read(1, 2), made.read(3, 6)] == [b"one", b"n", b"two"]
