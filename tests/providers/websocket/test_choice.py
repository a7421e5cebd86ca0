"""The protocol of a connection."""

import pytest

from tapeway.core.websocket.messages import WebSocketMessage
from tapeway.core.websocket.plain_session import VOICE
from tapeway.providers.websocket.choice import protocol_of, session_dialect_of

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


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("/v1/realtime?model=m", "openai-realtime"),
        ("/v1/realtime/translations", "openai-realtime"),
        ("/v1/live/sessions", "openai-realtime"),
        ("/v1/live/sessions/ls_1/attach", "openai-realtime"),
        ("/openai/realtime?deployment=d", "openai-realtime"),
        (
            "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent?key=k",
            "gemini-live",
        ),
        ("//ws/google.ai.X.GenerativeService.BidiGenerateContentConstrained", "gemini-live"),
        ("/ws/google.cloud.aiplatform.v1.LlmBidiService/BidiGenerateContent", "gemini-live"),
        ("/v1/listen?encoding=linear16", "session"),
        ("/feed?x=/realtime", "session"),
    ],
)
def test_the_path_chooses_the_dialect_of_a_session(target: str, name: str) -> None:
    assert session_dialect_of(target).name == name


@pytest.mark.parametrize(
    ("target", "is_voice"),
    [("/v1/listen", True), ("/v1/convai/conversation", True), ("/feed", False), ("/", False)],
)
def test_binary_messages_of_voice_services_are_audio(target: str, is_voice: bool) -> None:
    assert (session_dialect_of(target) is VOICE) is is_voice
