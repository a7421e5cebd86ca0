"""Keys in subprotocols, and what sessions hand out that opens them again."""

import json

import pytest

from tapeway.core.model.request_fields import RequestFields
from tapeway.core.redaction.credentials import (
    header_credentials,
    plain_subprotocols,
    subprotocol_credentials,
)
from tapeway.core.redaction.redactor import Redactor
from tests.core.redaction.example_messages import SALT, make_request, make_response

KEY = "ek_68a1b2c368a1b2c368a1b2c368a1b2c3"
OPAQUE = "h5Xw0Vb1jZq8Lm3Kt7Yc"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"
HANDLE = "CiQ3ZjE5MmQ4YS1hMGM0LTQ5ZTctYjZkZi0wYzI5OGU3YTFiM2Q"


@pytest.mark.parametrize(
    ("offered", "keys", "plain"),
    [
        ("realtime", [], ["realtime"]),
        (f"realtime, openai-insecure-api-key.{KEY}", [KEY], ["realtime"]),
        (
            f"realtime, openai-insecure-api-key.{KEY}, openai-organization.org-1, openai-beta.x",
            [KEY],
            ["realtime", "openai-organization.org-1", "openai-beta.x"],
        ),
        # Too short to be searched for elsewhere, and no subprotocol all the same.
        ("openai-insecure-api-key.short,realtime", [], ["realtime"]),
        (f"token, {OPAQUE}", [OPAQUE], ["token"]),
        (f"bearer,{JWT}", [JWT], ["bearer"]),
        (f"base64url.bearer.authorization.k8s.io.{OPAQUE}, v4", [OPAQUE], ["v4"]),
        (OPAQUE, [OPAQUE], []),
        (
            "graphql-transport-ws, graphql-ws, mqtt, v12.stomp, actioncable-v1-json",
            [],
            ["graphql-transport-ws", "graphql-ws", "mqtt", "v12.stomp", "actioncable-v1-json"],
        ),
        (" , ", [], []),
    ],
)
def test_a_key_among_subprotocols_is_known(offered: str, keys: list[str], plain: list[str]) -> None:
    assert [
        credential.value.decode() for credential in subprotocol_credentials(offered.split(","))
    ] == keys
    assert plain_subprotocols(offered.split(",")) == plain
    fields = ((b"Sec-WebSocket-Protocol", offered.encode()),)
    assert [
        credential.value.decode() for credential in header_credentials(RequestFields(fields))
    ] == keys


def _handles(handle: str) -> list[dict[str, object]]:
    return [
        {"sessionResumptionUpdate": {"newHandle": handle, "resumable": True}},
        {"session_resumption_update": {"new_handle": handle}},
        {"setup": {"model": "m", "sessionResumption": {"handle": handle}}},
        {"setup": {"session_resumption": {"transparent": True, "handle": handle}}},
        {"said": json.dumps({"sessionResumptionUpdate": {"newHandle": handle}})},
    ]


@pytest.mark.parametrize("at", range(5))
@pytest.mark.parametrize("indent", [None, 2])
def test_the_handle_of_a_session_is_stored_nowhere(at: int, indent: int | None) -> None:
    text = json.dumps(_handles(HANDLE)[at], indent=indent).encode()
    redactor = Redactor(SALT)
    stored = [
        redactor.request(make_request(((b"content-type", b"application/json"),), body=text)).body,
        redactor.response(make_response(text)).body,
        redactor.message(text, in_response=True),
        redactor.message(text, in_response=False),
    ]
    for line in stored:
        assert HANDLE.encode() not in line
        assert json.loads(line).keys() == json.loads(text).keys()
    assert stored[0] == stored[2] == stored[3]


def test_another_handle_is_none() -> None:
    text = json.dumps({"user": {"handle": "somebody-on-the-net"}}).encode()
    assert Redactor(SALT).message(text, in_response=True) == text


@pytest.mark.parametrize(
    "issued",
    [
        {"value": KEY, "expires_at": 1795264215, "session": {"type": "realtime"}},
        {"client_secret": {"value": KEY, "expires_at": 1795264215}},
        {"name": f"auth_tokens/{OPAQUE}{OPAQUE}"},
    ],
)
def test_a_client_secret_is_stored_nowhere(issued: dict[str, object]) -> None:
    text = json.dumps(issued).encode()
    stored = Redactor(SALT).response(make_response(text)).body
    assert KEY.encode() not in stored
    assert OPAQUE.encode() not in stored
    assert b"REDACTED." in stored
