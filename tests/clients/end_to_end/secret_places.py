"""Every place where a request can carry a secret, each with the way in which it is said back."""

import base64
import gzip
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote

import orjson

Segments = tuple[bytes, ...]


def request(
    target: str, *fields: str, body: bytes = b'{"hello": "you"}', kind: str = "application/json"
) -> bytes:
    """A POST as bytes."""
    lines = [f"POST {target} HTTP/1.1", "Host: app", f"Content-Type: {kind}", *fields]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


@dataclass(frozen=True, slots=True)
class Place:
    """`segments` makes the request to `/NAME`, with the secret in it, that a client sends."""

    segments: Callable[[str, str], Segments]
    way: str = "nothing"


def _field(template: str, way: str = "nothing") -> Place:
    """A header field with the secret where SECRET stands."""
    return Place(lambda target, secret: (request(target, template.replace("SECRET", secret)),), way)


def _json(target: str, secret: str) -> Segments:
    fields = {"api_key": secret, "tools": [{"client_secret": secret}], "input": "hello"}
    return (request(target, body=orjson.dumps(fields)),)


def _in_two_segments(target: str, secret: str) -> Segments:
    whole = request(target, f"X-Api-Key: {secret}", body=orjson.dumps({"api_key": secret}))
    first = whole.index(secret.encode()) + 9
    second = whole.rindex(secret.encode()) + 9
    return whole[:first], whole[first:second], whole[second:]


def _multipart(target: str, secret: str) -> Segments:
    part = '--b0undary\r\nContent-Disposition: form-data; name="{}"\r\n\r\n{}\r\n'
    body = part.format("password", secret) + part.format("model", "m") + "--b0undary--\r\n"
    kind = "multipart/form-data; boundary=b0undary"
    return (request(target, body=body.encode(), kind=kind),)


def _form(target: str, secret: str) -> Segments:
    body = f"grant_type=client_credentials&client_secret={quote(secret, safe='')}".encode()
    return (request(target, body=body, kind="application/x-www-form-urlencoded"),)


def _trailer(target: str, secret: str) -> Segments:
    fields = "Transfer-Encoding: chunked\r\nTrailer: X-Api-Key\r\nContent-Type: text/plain"
    head = f"POST {target} HTTP/1.1\r\nHost: app\r\nX-Api-Key: {secret}\r\n{fields}\r\n\r\n"
    return (head.encode() + b"5\r\nhello\r\n0\r\n" + f"X-Api-Key: {secret}\r\n\r\n".encode(),)


def _packed(target: str, secret: str) -> Segments:
    body = gzip.compress(orjson.dumps({"password": secret}), mtime=0)
    return (request(target, "Content-Encoding: gzip", body=body),)


def _basic(target: str, secret: str) -> Segments:
    login = base64.b64encode(f"user:{secret}".encode()).decode()
    return (request(target, f"Authorization: Basic {login}"),)


PLACES: dict[str, Place] = {
    "bearer": _field("Authorization: Bearer SECRET"),
    "basic": Place(_basic),
    "proxy-authorization": _field("Proxy-Authorization: Bearer SECRET"),
    "x-api-key": _field("X-Api-Key: SECRET"),
    "api-key": _field("Api-Key: SECRET"),
    "x-goog-api-key": _field("X-Goog-Api-Key: SECRET"),
    "query": Place(
        lambda target, secret: (request(f"{target}?key={quote(secret, safe='')}&alt=sse"),)
    ),
    "cookie": _field("Cookie: theme=dark; session=SECRET"),
    "set-cookie": Place(lambda target, _: (request(target),), "set-cookie"),
    "json-field": Place(_json),
    "multipart-field": Place(_multipart),
    "form-field": Place(_form),
    "websocket-subprotocol": _field(
        "Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.SECRET"
    ),
    "echoed-subprotocol": _field("Sec-WebSocket-Protocol: token, SECRET", "body"),
    "echoed-key-subprotocol": _field(
        "Sec-WebSocket-Protocol: openai-insecure-api-key.SECRET, realtime", "header"
    ),
    "packed-field": Place(_packed),
    "event": _field("Authorization: Bearer SECRET", "event"),
    "trailer": Place(_trailer, "trailer"),
    "userinfo": Place(
        lambda target, secret: (request(f"http://user:{quote(secret, safe='')}@app{target}"),)
    ),
    "referrer": _field("Referer: https://user:SECRET@example.test/page"),
    "echoed-in-body": _field("Authorization: Bearer SECRET", "body"),
    "echoed-in-header": _field("X-Api-Key: SECRET", "header"),
    "echoed-in-error": _field("Authorization: Bearer SECRET", "error"),
    "echoed-from-query": Place(
        lambda target, secret: (request(f"{target}?key={quote(secret, safe='')}"),), "body"
    ),
    "echoed-cookie": _field("Cookie: session=SECRET", "body"),
    "echoed-login": Place(_basic, "body"),
    "echoed-field": Place(_json, "body"),
    "two-segments": Place(_in_two_segments, "chunks"),
    "over-events": _field("Authorization: Bearer SECRET", "events"),
    **{
        f"{coding}-{what}": _field("Authorization: Bearer SECRET", f"{coding} {what}")
        for coding in ("gzip", "deflate", "br", "zstd")
        for what in ("body", "events")
    },
}
