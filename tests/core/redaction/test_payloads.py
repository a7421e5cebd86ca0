"""Of realistic payloads only what holds a secret differs in a recording."""

import pytest

from tapeway.core.matching.request_redaction import RequestRedaction
from tapeway.core.model.messages import Request, Response, ResponseHead
from tapeway.core.redaction.credentials import environment_secrets
from tapeway.core.redaction.known_values import issued_credentials
from tapeway.core.redaction.spans import PLACEHOLDER
from tests.core.redaction.payloads import OPAQUE, PAYLOADS, Payload

SALT = "run-1"


def stored(payload: Payload) -> tuple[bytes, bytes]:
    """What the recorder stores of it: the header of the response, and the body that is looked at."""
    redaction = RequestRedaction(environment_secrets(payload.environ))
    body = payload.octets if payload.asked else b""
    request = Request("default", "POST", payload.target, payload.request_headers, body)
    if payload.asked:
        return b"", redaction.redact(SALT, request).body
    head = ResponseHead(200, "OK", payload.response_headers)
    response = Response(head, payload.octets, 0.0)
    redactor = redaction.redactor(SALT, request, issued_credentials(response.head))
    redacted = redactor.response(response)
    return b"\n".join([value for _, value in redacted.headers]), redacted.body


def test_there_are_seventy_payloads_and_more() -> None:
    assert len(PAYLOADS) >= 70
    assert len({payload.why for payload in PAYLOADS}) == len(PAYLOADS)


@pytest.mark.parametrize("payload", PAYLOADS, ids=[payload.why for payload in PAYLOADS])
def test_a_payload_differs_only_where_it_holds_a_secret(payload: Payload) -> None:
    header, body = stored(payload)
    sent = b"" if payload.asked else b"\n".join([value for _, value in payload.response_headers])

    assert ((header, body) != (sent, payload.octets)) == payload.differs, (header, body)
    if payload.differs:
        assert PLACEHOLDER.search(header + body)
        assert OPAQUE.encode() not in header + body
