"""Requests that no client package sends, written byte by byte, and credentials in every place."""

import base64
import gzip
import re
from urllib.parse import quote

import orjson

from tests.clients.programs.raw_socket import Fields, Wire, exchange, send_bytes
from tests.clients.programs.target import Run, Target

GEMINI = "/v1beta/models/gemini-2.5-flash"
CONTENTS = {"contents": [{"role": "user", "parts": [{"text": "Grüß dich"}]}]}
# The proxy frames its answers itself and dates them, and its replays ask for no wait.
FRAMING = {"transfer-encoding", "content-length", "connection", "keep-alive", "date"}
UNCOMPARED = FRAMING | {"retry-after", "retry-after-ms"}
SECRET_FIELDS = {
    "set-cookie",
    "openai-organization",
    "openai-project",
    "anthropic-organization-id",
}
# All of an account's name; of a cookie what stands between its name and its attributes.
COOKIE_PLACE = re.compile(
    r"; *(?:domain=[^;]*|expires=[^;]*|path=[^;]*|secure)(?=;|$)", re.IGNORECASE
)
SECRET_VALUES = re.compile(r"(?<==)[^;]+(?=;)|^[^=;]+$")


def chat(**more: object) -> bytes:
    """The body of a chat or message request."""
    return orjson.dumps(
        {"model": "m", "messages": [{"role": "user", "content": "Grüß dich"}]} | more
    )


def comparable(fields: Fields) -> Fields:
    """The header fields that a replay must give back; of secret ones no value is compared.

    The proxy changes where a cookie belongs and until when, so that the client sends it back to the
    proxy.
    """
    return tuple(
        (name, _without_secret(name, value))
        for name, value in fields
        if name.lower() not in UNCOMPARED and not name.lower().startswith("tapeway-")
    )


def _without_secret(name: str, value: str) -> str:
    if name.lower() not in SECRET_FIELDS:
        return value
    shown = SECRET_VALUES.sub("…", value, count=1)
    return COOKIE_PLACE.sub("", shown) if name.lower() == "set-cookie" else shown


def seen(wire: Wire) -> list[object]:
    return [wire.status, comparable(wire.fields), wire.chunked, wire.chunks, wire.complete]


def posting(
    target: str,
    credential: str,
    body: bytes,
    *more: tuple[str, str],
    content_type: str = "application/json",
) -> Run:
    """A POST with `KEY` in the credential's header field or in the target replaced."""

    async def run(to: Target) -> list[object]:
        name, _, value = credential.replace("KEY", to.key).partition(": ")
        fields = (("Content-Type", content_type), *more, ("Cookie", f"session={to.cookie}"))
        path = target.replace("KEY", quote(to.key, safe=""))
        sent = fields + (((name, value),) if name else ())
        return seen(await exchange(to.url, "POST", to.path + path, sent, body))

    return run


async def basic_login(to: Target) -> list[object]:
    """A key as the password of a Basic login."""
    login = base64.b64encode(f"user:{to.key}".encode()).decode()
    fields = (("Authorization", f"Basic {login}"), ("Cookie", f"session={to.cookie}"))
    return seen(await exchange(to.url, "GET", to.path + "/v1/models", fields))


async def chunked_upload(to: Target) -> list[object]:
    """A request body in two chunks."""
    body = chat()
    head = _head(to, "HTTP/1.1", "Transfer-Encoding: chunked")
    chunks = b"%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n" % (7, body[:7], len(body) - 7, body[7:])
    return seen(await send_bytes(to.url, head + chunks))


async def old_protocol(to: Target) -> list[object]:
    """A stream for a client that knows no chunks."""
    body = chat(stream=True)
    return seen(
        await send_bytes(to.url, _head(to, "HTTP/1.0", f"Content-Length: {len(body)}") + body)
    )


def _head(to: Target, version: str, framing: str) -> bytes:
    return (
        f"POST {to.path}/v1/chat/completions {version}\r\nHost: {to.host}\r\n"
        f"Content-Type: application/json\r\nAuthorization: Bearer {to.key}\r\n"
        f"Cookie: session={to.cookie}\r\n{framing}\r\n\r\n"
    ).encode()


RUNS: dict[str, Run] = {
    "bearer": posting("/v1/chat/completions", "Authorization: Bearer KEY", chat()),
    "bearer_stream": posting(
        "/v1/chat/completions", "Authorization: Bearer KEY", chat(stream=True)
    ),
    "x_api_key": posting("/v1/messages", "x-api-key: KEY", chat()),
    "x_api_key_stream": posting("/v1/messages", "X-Api-Key: KEY", chat(stream=True)),
    "api_key": posting("/openai/deployments/m/chat/completions", "api-key: KEY", chat()),
    "x_goog_api_key": posting(
        f"{GEMINI}:streamGenerateContent", "x-goog-api-key: KEY", orjson.dumps(CONTENTS)
    ),
    "key_in_the_query": posting(
        f"{GEMINI}:streamGenerateContent?alt=sse&key=KEY", "", orjson.dumps(CONTENTS)
    ),
    "json_lines": posting("/api/chat", "Authorization: Bearer KEY", chat()),
    "binary": posting(
        "/v1/audio/speech", "Authorization: Bearer KEY", orjson.dumps({"input": "hello"})
    ),
    "compressed_upload": posting(
        "/v1/chat/completions",
        "Authorization: Bearer KEY",
        gzip.compress(chat(), mtime=0),
        ("Content-Encoding", "gzip"),
    ),
    "basic_login": basic_login,
    "chunked_upload": chunked_upload,
    "old_protocol": old_protocol,
}
