"""Values that go from one process to another."""

import pytest

from tapeway.workers.messages import Frames, Value, pack

VALUES: list[Value] = [
    ("look", 7),
    None,
    {"a path": "/v1/x\udc80", "counts": [1, 2.5, True, None]},
    (b"\x00\xff" * 40_000, "", b""),
]


@pytest.mark.parametrize("piece", [1, 3, 4096, 1_000_000])
def test_values_come_out_as_they_went_in_however_the_stream_was_cut(piece: int) -> None:
    stream, frames = b"".join(map(pack, VALUES)), Frames()
    found: list[Value] = []
    for start in range(0, len(stream), piece):
        found += frames.feed(stream[start : start + piece])

    assert found == VALUES


def test_a_value_that_was_cut_by_the_end_of_its_process_does_not_come_out() -> None:
    frames = Frames()

    assert frames.feed(pack("whole") + pack("cut")[:-1]) == ["whole"]
