"""What a new answer means for the recordings of earlier takes."""

from dataclasses import replace

import pytest

from tapeway.core.cassette.rerecording import (
    MOST_IDS,
    head_checked,
    is_unchanged,
    random_words,
    reissued_ids,
    with_earlier_ids,
)
from tapeway.core.correlation.unify import IdBindings
from tapeway.core.json_text import Json, dump
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import (
    NO_CHUNK_TIMES,
    BodyFile,
    ChunkTimes,
    Failure,
    Headers,
    Request,
    Response,
    ResponseHead,
)

HEADERS: Headers = ((b"Content-Type", b"text/event-stream"), (b"Date", b"then"))
HEAD = ResponseHead(200, "OK", HEADERS, "chunked")
RECORDED = Interaction(
    3,
    Request("r", "GET", "/"),
    Response.of_chunks(HEAD, [(b"ab", 1.0), (b"c", 2.0)], latency_ms=3.0),
    latency_ms=3.0,
)
FILE = BodyFile("/a", 3, "aa")


def answered(**changes: object) -> Interaction:
    """The recording with another answer."""
    return replace(RECORDED, response=replace(RECORDED.response, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "new",
    [
        RECORDED,
        replace(RECORDED, index=9, latency_ms=77.0, tags=("x",)),
        answered(latency_ms=77.0, verdict="complete"),
        answered(chunk_times=ChunkTimes([(50.0, 1), (70.0, 2)])),
        answered(head=replace(HEAD, headers=(HEADERS[0], (b"Date", b"now")), reason="Fine")),
        answered(head=replace(HEAD, headers=HEADERS[:1], version="HTTP/1.0")),
    ],
)
def test_an_answer_that_differs_in_time_and_volatile_headers_is_unchanged(new: Interaction) -> None:
    assert is_unchanged(RECORDED, new)


@pytest.mark.parametrize(
    "new",
    [
        answered(body=b"ab", at_ms=1.0, chunk_times=NO_CHUNK_TIMES),
        answered(body=b"", file=FILE),
        answered(head=replace(HEAD, status=201)),
        answered(head=replace(HEAD, framing="length")),
        answered(head=replace(HEAD, headers=(*HEADERS, (b"x-model", b"m")))),
        replace(RECORDED, failure=Failure("cut", "")),
    ],
)
def test_another_answer_is_none(new: Interaction) -> None:
    assert not is_unchanged(RECORDED, new)


def test_large_bodies_are_compared_by_their_digest() -> None:
    recorded = answered(body=b"", file=FILE)

    assert is_unchanged(recorded, answered(body=b"", file=BodyFile("/b", 3, "aa")))
    assert not is_unchanged(recorded, answered(body=b"", file=BodyFile("/a", 3, "bb")))


def response(value: Json, *headers: tuple[bytes, bytes]) -> Response:
    return Response(ResponseHead(200, headers=headers), dump(value))


def test_an_identifier_stands_for_the_one_in_its_place() -> None:
    earlier = response({"id": "c1", "calls": [{"id": "a1"}, {"id": "b1"}], "text": "a1"})
    new = response({"id": "c2", "calls": [{"id": "a2"}, {"id": "b1"}], "text": "other"})

    assert reissued_ids(earlier, new) == {"c1": "c2", "a1": "a2"}


def test_identifiers_of_a_stream_are_counted_once() -> None:
    def events(id: str, count: int) -> Response:
        body = b"".join([b'data: {"id":"%b","n":1}\n\n' % id.encode() for _ in range(count)])
        return Response(ResponseHead(200), body)

    assert reissued_ids(events("x_1", 3), events("x_2", 5)) == {"x_1": "x_2"}


def test_where_another_number_was_issued_nothing_stands_for_anything() -> None:
    earlier = response({"calls": [{"id": "a1"}], "response_id": "r1"})
    new = response({"calls": [{"id": "a2"}, {"id": "b2"}], "response_id": "r2"})

    assert reissued_ids(earlier, new) == {"r1": "r2"}


def test_the_identifiers_of_a_long_list_are_not_followed() -> None:
    def listed(run: str, count: int) -> Response:
        return response([{"id": f"{run}-{at}"} for at in range(count)])

    assert len(reissued_ids(listed("a", MOST_IDS), listed("b", MOST_IDS))) == MOST_IDS
    assert reissued_ids(listed("a", MOST_IDS + 1), listed("b", MOST_IDS + 1)) == {}


def test_a_link_issues_an_identifier() -> None:
    earlier = response({}, (b"Location", b"/v1/jobs/job_k1Xw0Vb1jZ"))
    new = response({}, (b"Location", b"/v1/jobs/job_k2Xw0Vb1jZ"))

    assert reissued_ids(earlier, new) == {"job_k1Xw0Vb1jZ": "job_k2Xw0Vb1jZ"}


def test_a_request_is_named_as_before_where_an_identifier_stands_alone() -> None:
    bindings = IdBindings()
    bindings.bind({"call_old1": "call_new1", "t_old12345": "t_new12345", "a": "1"})
    request = Request(
        "r",
        "POST",
        "/v1/t_new12345/x?after=t_new12345&y=call_new12",
        body=b'{"id":"call_new1","n":"1","note":"see t_new12345. Or xt_new12345","k":1}',
    )
    named = with_earlier_ids(request, bindings)

    assert named.target == "/v1/t_old12345/x?after=t_old12345&y=call_new12"
    assert named.body == b'{"id":"call_old1","n":"a","note":"see t_old12345. Or xt_new12345","k":1}'
    assert with_earlier_ids(request, IdBindings()) == request


def test_the_words_of_a_request_that_look_random_may_be_identifiers() -> None:
    request = Request("r", "POST", "/v1/t_new12345?q=words", body=b'{"id":"call_h5Xw0Vb1jZ"}')

    assert random_words(request) == {"t_new12345", "call_h5Xw0Vb1jZ"}


def test_a_head_is_the_same_object_where_the_day_is_known() -> None:
    head = CassetteHead("", "", {"a": 1})
    checked = head_checked(head, "2026-11-22")

    assert checked.meta == {"a": 1, "checked_at": "2026-11-22"}
    assert head_checked(checked, "2026-11-22") is checked
