"""What a worker tells, in plain values, onto the wire and back."""

import pytest

from tapeway.core.misses.miss import NearestRecording
from tapeway.engine.journal import ServedRequest
from tapeway.workers.messages import Frames, Value, WorkerMessages, pack, read, written

ENTRY = ServedRequest(
    "tw-1", 1.5, "a/b", "openai", "POST", "/v1/x\udc80", "replayed", 200, 3, 0.25, b"\xffkey"
)
NEAR = NearestRecording(
    4, ({"path": "body.x", "recorded": [1, None], "requested": {"y": True}},), 2
)
VALUES: list[Value] = [
    ("look", 7),
    None,
    {"a path": "/v1/x\udc80", "counts": [1, 2.5, True, None]},
    (b"\x00\xff" * 40_000, "", b""),
]


@pytest.mark.parametrize(
    "message",
    [
        WorkerMessages(12.25, ENTRY._replace(tokens=(1, 2, 3)), 0),
        WorkerMessages(
            0.5,
            ENTRY._replace(
                outcome="miss",
                status=424,
                interaction=None,
                key=None,
                message="replay miss",
                nearest=(NEAR, NearestRecording(5)),
                suggestion='ignore = ["body.x"]',
                attempt=2,
            ),
            17,
        ),
    ],
    ids=["a hit", "a miss"],
)
def test_it_arrives_as_it_was_told(message: WorkerMessages) -> None:
    (value,) = Frames().feed(pack(written(message)))
    found = read(value)

    assert found == message
    assert type(found.served) is ServedRequest
    assert {type(each) for each in found.served.nearest} <= {NearestRecording}


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
