"""Chooses the protocol of a connection by path, subprotocol and first client message."""

import re
from collections.abc import Mapping

from tapeway.core.json_text import json_object
from tapeway.core.websocket.graphql import GRAPHQL_TRANSPORT_WS, GRAPHQL_WS
from tapeway.core.websocket.json_rpc import JsonRpc, is_json_rpc
from tapeway.core.websocket.messages import WebSocketMessage
from tapeway.core.websocket.plain_session import PLAIN, VOICE
from tapeway.core.websocket.request_protocol import RequestProtocol
from tapeway.core.websocket.session_dialect import SessionDialect
from tapeway.providers.websocket.gemini_live import GeminiLiveSession
from tapeway.providers.websocket.realtime import RealtimeSession
from tapeway.providers.websocket.responses import OpenAIResponses

OPENAI_RESPONSES = OpenAIResponses()
JSON_RPC = JsonRpc()
REALTIME = RealtimeSession()
GEMINI_LIVE = GeminiLiveSession()

_REALTIME_PATH = re.compile(r".*/(?:realtime|live/sessions)(?:/[^?]*)?")
_GEMINI_PATH = re.compile(r".*[/.](?:BidiGenerateContent)\w*")
_VOICE_PATH = re.compile(
    r".*(?:listen|speech|voice|audio|transcri|\bstt\b|\basr\b|convai|agent/converse).*",
    re.IGNORECASE,
)
"""Paths of services with audio in binary messages: Deepgram, AssemblyAI, ElevenLabs and more."""

_BY_SUBPROTOCOL: Mapping[str, RequestProtocol] = {
    protocol.name: protocol for protocol in (GRAPHQL_TRANSPORT_WS, GRAPHQL_WS)
}


def protocol_of(target: str, subprotocol: str, first: WebSocketMessage) -> RequestProtocol | None:
    """The request protocol of a connection, None where the connection is one session.

    `target` is the raw path and query of the handshake, `subprotocol` the one that the upstream (or
    the recording) has chosen, `first` the first message of the client.
    """
    if subprotocol in _BY_SUBPROTOCOL:
        return _BY_SUBPROTOCOL[subprotocol]
    if is_json_rpc(first.data):
        return JSON_RPC
    return OPENAI_RESPONSES if _is_responses(target, first) else None


def session_dialect_of(target: str) -> SessionDialect:
    """The dialect of a session by the raw path and query of its handshake."""
    path = target.partition("?")[0]
    if _REALTIME_PATH.fullmatch(path):
        return REALTIME
    if _GEMINI_PATH.fullmatch(path):
        return GEMINI_LIVE
    return VOICE if _VOICE_PATH.fullmatch(path) else PLAIN


def _is_responses(target: str, first: WebSocketMessage) -> bool:
    if target.partition("?")[0].rstrip("/").endswith("/responses"):
        return True
    # Realtime has a message of this type too, with the request inside `response`.
    value = json_object(first.data)
    if value is None or value.get("type") != "response.create":
        return False
    return "response" not in value and ("input" in value or "model" in value)
