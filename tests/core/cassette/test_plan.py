"""What is said of an answer."""

from tapeway.core.cassette.plan import Answer
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseHead
from tapeway.core.redaction.redactor import Redactor

HIDDEN = [Redactor("run").placeholder("x", value) for value in (b"one-secret", b"another")]


def response(body: bytes) -> Response:
    return Response(ResponseHead(200), body)


def test_each_secret_that_was_replaced_in_request_or_response_counts_once() -> None:
    request = Request("default", "POST", "/", ((b"Accept", HIDDEN[0]),), HIDDEN[0])
    recorded = Interaction(0, request, response(b" ".join(HIDDEN)))

    assert Answer("recorded", "c", response(b"plain"), 0, b"", recorded=recorded).redacted == [
        "x",
        "x",
    ]


def test_a_response_that_is_stored_as_it_came_has_none() -> None:
    came = response(HIDDEN[1])
    recorded = Interaction(0, Request("default", "POST", "/", body=HIDDEN[0]), came)

    assert Answer("recorded", "c", came, 0, b"", recorded=recorded).redacted == ["x"]
