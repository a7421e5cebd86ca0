"""What a tapeway says to a script of requests and admin calls, but for what no two runs share."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Self

from tests.process.serving import DEADLINE_S, Tapeway, request
from tests.support.listening import Listening
from tests.support.raw_client import Answer, RawClient

LARGE = b"x" * (2 * 1024 * 1024)

_PASSING = frozenset(
    {
        *("at", "at_ms", "created_at", "duration_ms", "id", "latency_ms", "mark", "modified_at"),
        *("request_id", "run_id", "sha256", "size_bytes", "time", "timestamp", "url", "wait"),
        # Each process has connections of its own.
        *("upstream_connections", "open_connections"),
    }
)
_TEXTS = (
    (re.compile(r"\btw-[0-9a-z-]+"), "ID"),
    (re.compile(r"127\.0\.0\.1:\d+"), "HOST"),
    (re.compile(r"schema=t_\w+"), "SCHEMA"),
    (re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+(Z|\+00:00)"), "TIME"),
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "RUN"),
    (re.compile(r"[0-9a-f]{64}"), "DIGEST"),
    (re.compile(r"REDACTED\.[a-z]+\.[a-z2-7]+"), "REDACTED"),
    (re.compile(r'"(at|latency)_ms":[0-9.]+'), "MS"),
    (re.compile(r"/\S*/all\.db"), "STORE"),
)


class Counting:
    """An upstream whose n-th answer to a target says so, whoever asks."""

    def __init__(self) -> None:
        self._asks: Counter[str] = Counter()
        self._listening = Listening(self._answer)
        self.url = ""

    async def __aenter__(self) -> Self:
        self.url = f"http://127.0.0.1:{await self._listening.start()}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._listening.stop()

    async def _answer(
        self, asked: bytes, _: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        target = asked.split(b" ", 2)[1].decode()
        self._asks[target] += 1
        count = self._asks[target]
        document = {
            "id": f"chatcmpl-{count}",
            "object": "chat.completion",
            "model": "gpt-5",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": f"no. {count}"}}],
            "usage": {"prompt_tokens": 3, "completion_tokens": count, "total_tokens": 3 + count},
        }
        large = "large" in target
        body = LARGE if large else json.dumps(document).encode()
        status = b"500 Internal Server Error" if "broken" in target else b"200 OK"
        kind = b"text/plain" if large else b"application/json"
        head = b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
        writer.write(head % (status, kind, len(body)) + body)
        await writer.drain()
        return True


class Script:
    """Calls a tapeway, each time on a connection of its own, and keeps what it said."""

    def __init__(self, tapeway: Tapeway) -> None:
        self.said: list[tuple[str, Any]] = []
        self._tapeway = tapeway

    async def ask(self, target: str, body: object = None, *fields: tuple[str, str]) -> Answer:
        """A request of an app."""
        content = b"" if body is None else json.dumps(body).encode()
        kind = (("Content-Type", "application/json"),) if content else ()
        answer = await self._tapeway.ask(target, content, *kind, *fields)
        return self._kept(f"ask {target}", answer)

    async def admin(
        self,
        method: str,
        path: str,
        body: object = None,
        fields: Mapping[str, str] | None = None,
        kind: str = "application/json",
    ) -> Answer:
        """An admin call."""
        url = str(self._tapeway.ready["admin"])
        content = body if isinstance(body, bytes) else b""
        if body is not None and not isinstance(body, bytes):
            content = json.dumps(body).encode()
        sent = request(
            path if path.startswith("/") else f"/api/v1/{path}",
            content,
            *(("Content-Type", kind), *(fields or {}).items()),
            method=method,
            host=url.removeprefix("http://"),
        )
        async with asyncio.timeout(DEADLINE_S), RawClient(url) as client:
            answer = await client.ask(sent)
        return self._kept(f"{method} {_text(path)}", answer)

    def _kept(self, what: str, answer: Answer) -> Answer:
        told = [(name.lower(), value) for name, value in answer.fields]
        own = [
            (name, _text(value.decode()))
            for name, value in told
            if name.startswith(b"tapeway-") or name in (b"content-type", b"allow")
        ]
        tagged = b"etag" in dict(told)
        self.said.append((what, (answer.status, sorted(own), tagged, _body(answer.body))))
        return answer


def _body(body: bytes) -> Any:
    try:
        return _plain(json.loads(body))
    except ValueError:
        text = body.decode(errors="replace")
    if text.startswith("# HELP"):
        lines = text.splitlines()
        return [line for line in lines if line.startswith(("tapeway_requests", "tapeway_cass"))]
    return _text(text)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: None if key in _PASSING else _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return _text(value) if isinstance(value, str) else value


def _text(text: str) -> str:
    for pattern, name in _TEXTS:
        text = pattern.sub(name, text)
    return text
