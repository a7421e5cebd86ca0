"""A response whose addresses lead its client through the proxy again."""

from collections.abc import Sequence
from dataclasses import replace

from tapeway.core.http.content_codings import coding_of, decode, without_coding_fields
from tapeway.core.matching.json_paths import Path
from tapeway.core.model.messages import NO_CHUNK_TIMES, Response, ResponseHead
from tapeway.core.model.request_fields import is_json, media_type
from tapeway.core.streams.end_marks import has_no_body
from tapeway.core.streams.events import SSE
from tapeway.core.way_back.addresses import WayBack
from tapeway.core.way_back.events import EndpointEvents
from tapeway.core.way_back.head import lead_head, names_addresses
from tapeway.core.way_back.members import lead_members, may_hold

_PARTIAL = 206


def has_json(method: str, head: ResponseHead) -> bool:
    """Whether the body of a response to this method is a whole JSON document."""
    kind = head.value(b"content-type") or b""
    # Lines of JSON have a type such as `application/stream+json`.
    return (
        is_json(kind)
        and b"stream" not in media_type(kind)
        and head.status != _PARTIAL
        and not has_no_body(method, head)
    )


def has_endpoint_events(method: str, head: ResponseHead) -> bool:
    """Whether the body of a response to this method may say where to post messages to."""
    kind = media_type(head.value(b"content-type") or b"")
    return method == "GET" and kind == SSE and not coding_of(head)


def names_any_address(method: str, response: Response, members: Sequence[Path]) -> bool:
    """Whether a response whose body is in memory may have an address that must be led back."""
    head, body = response.head, response.body
    if names_addresses(head):
        return True
    if has_json(method, head):
        return bool(coding_of(head)) or may_hold(body, members)
    return has_endpoint_events(method, head) and b"endpoint" in body


def lead_response(
    method: str, response: Response, members: Sequence[Path], way_back: WayBack
) -> Response:
    """The response to the method, body in memory, with rewritten addresses."""
    head = lead_head(response.head, way_back)
    if has_json(method, head):
        led_head, body = lead_document(head, response.body, members, way_back)
        if led_head is not head:
            at_ms = response.arrivals().times[-1]
            led = replace(response, head=led_head, body=body, at_ms=at_ms)
            return replace(led, chunk_times=NO_CHUNK_TIMES)
    elif has_endpoint_events(method, head) and b"endpoint" in response.body:
        response = _lead_events(response, way_back)
    return response if head is response.head else replace(response, head=head)


def lead_document(
    head: ResponseHead, body: bytes, members: Sequence[Path], way_back: WayBack
) -> tuple[ResponseHead, bytes]:
    """Head and body of a JSON document with rewritten addresses at these members.

    Both are the same objects where that changes nothing. A changed body is plain, and nothing in the
    head says more of the body that was sent by the service.
    """
    plain = decode(coding_of(head), body)
    if plain is None or (led := lead_members(plain, members, way_back)) == plain:
        return head, body
    length = None if head.length is None else len(led)
    return replace(head, headers=without_coding_fields(head.headers), length=length), led


def _lead_events(response: Response, way_back: WayBack) -> Response:
    events = EndpointEvents(way_back)
    pieces = [
        (events.feed(piece), at_ms)
        for piece, at_ms in zip(response.pieces(), response.arrivals().times, strict=True)
    ]
    pieces.append((events.finish(), pieces[-1][1]))
    led = Response.of_chunks(response.head, [piece for piece in pieces if piece[0]])
    if led.body == response.body:
        return response
    return replace(response, body=led.body, at_ms=led.at_ms, chunk_times=led.chunk_times)
