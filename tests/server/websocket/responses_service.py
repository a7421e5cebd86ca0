"""A service that answers the Responses API over WebSocket, a few events for each request."""

import json
from itertools import count
from typing import Any

from aiohttp import WSMessage, WSMsgType, web

_NUMBERS = count(1)


async def answer_responses(socket: web.WebSocketResponse, first: WSMessage | None = None) -> None:
    """Answer each request in turn; `boom` as the input gets an error, `cut` loses the connection."""
    while True:
        message, first = first or await socket.receive(), None
        if message.type is WSMsgType.CLOSE:
            await socket.close(code=message.data or 1000)
            return
        if message.type is not WSMsgType.TEXT:
            return
        for event in events(json.loads(message.data)):
            if event == {}:
                await socket.close(code=1011, message=b"broken")
                return
            await socket.send_str(json.dumps(event))


def events(request: dict[str, Any]) -> list[dict[str, Any]]:
    """The events that answer a request; an empty one loses the connection."""
    number = next(_NUMBERS)
    lane: dict[str, Any] = {"stream_id": request["stream_id"]} if "stream_id" in request else {}
    said = f"answer {number} to {request.get('input')}"
    if request.get("input") == "boom":
        error = {"type": "invalid_request_error", "code": "bad", "message": "no"}
        return [{"type": "error", "status": 400, "error": error, **lane}]
    response: dict[str, Any] = {"id": f"resp_{number:024x}", "object": "response"}
    if "previous_response_id" in request:
        response["previous_response_id"] = request["previous_response_id"]
    begun = {"type": "response.created", "response": {**response, "status": "in_progress"}}
    deltas = [{"type": "response.output_text.delta", "delta": part} for part in said.split()]
    usage = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
    done = {
        "type": "response.completed",
        "response": {**response, "status": "completed", "usage": usage},
    }
    found: list[dict[str, Any]] = [begun, *deltas, done]
    if request.get("input") == "cut":
        found = [begun, deltas[0]]
    numbered = [event | {"sequence_number": at} | lane for at, event in enumerate(found)]
    return [*numbered, {}] if request.get("input") == "cut" else numbered
