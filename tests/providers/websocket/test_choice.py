"""The protocol of a connection."""

import pytest

from tapeway.core.websocket.messages import WebSocketMessage
from tapeway.providers.websocket.choice import protocol_named, protocol_of

CREATE = b'{"type":"response.create","model":"m","input":"hi"}'


@pytest.mark.parametrize(
    ("target", "subprotocol", "first", "name"),
    [
        ("/v1/responses", "", CREATE, "openai-responses"),
        ("/v1/responses/?api-version=2", "", b"words", "openai-responses"),
        ("/backend-api/codex/responses", "", b"{}", "openai-responses"),
        ("/gateway", "", CREATE, "openai-responses"),
        ("/v1/realtime?model=m", "realtime", b'{"type":"session.update"}', None),
        ("/v1/realtime?model=m", "", b'{"type":"response.create"}', None),
        ("/gateway", "", b'{"type":"response.create","response":{"input":[]}}', None),
        ("/", "", b'{"jsonrpc":"2.0","id":1,"method":"x"}', "json-rpc"),
        ("/graphql", "graphql-transport-ws", b'{"type":"connection_init"}', "graphql-transport-ws"),
        ("/graphql", "graphql-ws", b'{"type":"connection_init"}', "graphql-ws"),
        ("/graphql", "", b'{"type":"connection_init"}', None),
        ("/ws/google.ai.Bidi", "", b'{"setup":{}}', None),
        ("/listen", "", b"\x00\x01", None),
    ],
)
def test_path_subprotocol_and_first_message_choose(
    target: str, subprotocol: str, first: bytes, name: str | None
) -> None:
    found = protocol_of(target, subprotocol, WebSocketMessage(first))
    assert (found.name if found is not None else None) == name
    if found is not None:
        assert protocol_named(found.name) is found


def test_an_unknown_name_is_no_protocol() -> None:
    assert protocol_named("nothing") is None
