"""What the tests do with curl."""

import asyncio
import json
from urllib.parse import quote

from tests.clients.programs.target import Run, Target

CHAT = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Grüß dich"}]}


async def _curl(target: Target, path: str, *options: str, given: bytes = b"") -> list[object]:
    process = await asyncio.create_subprocess_exec(
        *("curl", "--silent", "--show-error", "--no-buffer", "--noproxy", "*"),
        *("--cookie", f"session={target.cookie}", *options, target.url + path),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate(given)
    return [process.returncode, out]


def _bearer(target: Target) -> tuple[str, str]:
    return ("--header", f"Authorization: Bearer {target.key}")


async def post(target: Target) -> list[object]:
    seen = await _curl(target, "/v1/chat/completions", *_bearer(target), "--json", json.dumps(CHAT))
    assert "Grüß dich".encode() in bytes(seen[1])  # type: ignore[call-overload]
    return seen


async def stream(target: Target) -> list[object]:
    body = json.dumps(CHAT | {"stream": True})
    seen = await _curl(target, "/v1/chat/completions", *_bearer(target), "--json", body)
    assert bytes(seen[1]).endswith(b"data: [DONE]\n\n")  # type: ignore[call-overload]
    return seen


async def large_post(target: Target) -> list[object]:
    """A body so large that curl first asks whether to send it (`Expect: 100-continue`)."""
    words = [{"role": "user", "content": "long " * 300_000}]
    body = json.dumps(CHAT | {"messages": words}).encode()
    options = ("--header", "Content-Type: application/json", "--data-binary", "@-")
    return await _curl(target, "/v1/chat/completions", *_bearer(target), *options, given=body)


async def key_in_the_query(target: Target) -> list[object]:
    path = f"/v1beta/models/gemini-2.5-flash:generateContent?api_key={quote(target.key, safe='')}"
    body = json.dumps({"contents": [{"parts": [{"text": "Grüß dich"}]}]})
    return await _curl(target, path, "--json", body)


async def upload(target: Target) -> list[object]:
    form = ("--form", "purpose=user_data", "--form", "file=@-;filename=naïve.txt")
    return await _curl(target, "/v1/files", *_bearer(target), *form, given=b"line\r\n\0\xff")


async def binary(target: Target) -> list[object]:
    body = json.dumps({"model": "tts-1", "input": "hello", "voice": "alloy"})
    return await _curl(target, "/v1/audio/speech", *_bearer(target), "--json", body)


RUNS: dict[str, Run] = {
    run.__name__: run for run in (post, stream, large_post, key_in_the_query, upload, binary)
}
