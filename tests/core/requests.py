"""Requests and recordings made up for a test."""

from tapeway.core.json_text import Json, dump
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseHead
from tests.core.keys import JSON


def asked(
    body: Json = None,
    *,
    target: str = "/v1/chat/completions",
    method: str = "POST",
    route: str = "openai",
) -> Request:
    """A request with a JSON body, or with none."""
    if body is None:
        return Request(route, method, target)
    return Request(route, method, target, JSON, dump(body))


def recordings_of(*requests: Request) -> list[Interaction]:
    """Recordings of these requests."""
    return [
        Interaction(index, request, Response(ResponseHead(200)))
        for index, request in enumerate(requests)
    ]


def chat(*contents: str, **more: Json) -> dict[str, Json]:
    """The body of a chat."""
    messages: list[Json] = [
        {"role": "assistant" if at % 2 else "user", "content": content}
        for at, content in enumerate(contents)
    ]
    return {"model": "m", "messages": messages, **more}
