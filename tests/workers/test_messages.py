"""What a worker reports, encoded and decoded."""

import pytest

from tapeway.core.misses.miss import MissedRequest, NearestRecording
from tapeway.core.model.messages import LARGE_BODY, Request, Response, ResponseHead
from tapeway.engine.journal import ClientTexts, ServedRequest
from tapeway.engine.kept_calls import KeptCall
from tapeway.workers.messages import (
    FrameDecoder,
    Value,
    WorkerReport,
    decode_report,
    encode_frame,
    encode_report,
)

ENTRY = ServedRequest(
    "tw-1",
    1.5,
    "a/b",
    "openai",
    "POST",
    ClientTexts("/v1/x\udc80", "id", "trace"),
    "replayed",
    200,
    3,
    0.25,
    b"\xffkey",
)
NEAR = NearestRecording(
    4, ({"path": "body.x", "recorded": [1, None], "requested": {"y": True}},), 2
)
ASKED = Request(
    *("openai", "POST", "/v1/x\udc80", ((b"A", b"\xff"),), b"{}", "http://s"),
    credentials=(("authorization", "REDACTED"),),
)
LARGE = Request("openai", "PUT", "/v1/y", body=b"x" * (LARGE_BODY + 1))
HEAD = ResponseHead(429, "Slow down", ((b"Retry-After", b"1"),), "chunked", length=7)
CAME = [(b"a word", 1.5), (b"\xff", 9.25)]
VALUES: list[Value] = [
    ("status", 7),
    None,
    {"a path": "/v1/x\udc80", "counts": [1, 2.5, True, None]},
    (b"\x00\xff" * 40_000, "", b""),
]


@pytest.mark.parametrize(
    "report",
    [
        WorkerReport(12.25, ENTRY._replace(tokens=(1, 2, 3)), 0),
        WorkerReport(
            0.5,
            ENTRY._replace(
                outcome="miss",
                status=400,
                interaction=None,
                key=None,
                message="replay miss",
                nearest=(NEAR, NearestRecording(5)),
                suggestion='ignore = ["body.x"]',
                attempt=2,
                kept=KeptCall.of(
                    *(ASKED, Response(HEAD, b"{}")), missed=MissedRequest(ASKED, 2, (1, 3))
                ),
            ),
            17,
        ),
        WorkerReport(
            0.5,
            ENTRY._replace(
                outcome="live",
                status=429,
                interaction=None,
                kept=KeptCall.of(LARGE, Response.of_chunks(HEAD, CAME, verdict="truncated")),
            ),
            17,
        ),
    ],
    ids=["a hit", "a miss", "a live call"],
)
def test_a_report_is_decoded_as_it_was_encoded(report: WorkerReport) -> None:
    (value,) = FrameDecoder().feed(encode_frame(encode_report(report)))
    found = decode_report(value)

    assert isinstance(found, WorkerReport)
    assert found == report
    assert type(found.served) is ServedRequest
    assert {type(recording) for recording in found.served.nearest} <= {NearestRecording}


@pytest.mark.parametrize("piece", [1, 3, 4096, 1_000_000])
def test_values_are_the_same_wherever_chunks_end(piece: int) -> None:
    stream, frames = b"".join(map(encode_frame, VALUES)), FrameDecoder()
    found: list[Value] = []
    for start in range(0, len(stream), piece):
        found += frames.feed(stream[start : start + piece])

    assert found == VALUES


def test_a_frame_that_its_process_did_not_finish_is_left_out() -> None:
    frames = FrameDecoder()

    assert frames.feed(encode_frame("whole") + encode_frame("cut")[:-1]) == ["whole"]
