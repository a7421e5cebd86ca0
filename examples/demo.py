"""Record calls of the OpenAI and Anthropic clients, stop the upstream, replay, and compare.

Needs no key and no network: the upstream is the stand-in that ships with tapeway. `make demo` runs
this. It exits with 1 if anything that was replayed differs from what was recorded.
"""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

from anthropic import Anthropic, AsyncAnthropic
from openai import AsyncOpenAI, OpenAI

from tapeway.testing import ThreadedStandIn

GPT, CLAUDE = "gpt-4o-mini", "claude-sonnet-5"
CITY: Any = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER: Any = {"name": "weather", "description": "The weather in a city", "parameters": CITY}


def words(text: str) -> Any:
    return [{"role": "user", "content": text}]


def openai_chat(url: str) -> Any:
    with OpenAI(base_url=f"{url}/openai/v1", api_key="sk-demo") as client:
        return client.chat.completions.create(model=GPT, messages=words("What is a cassette?"))


def openai_stream(url: str) -> Any:
    with OpenAI(base_url=f"{url}/openai/v1", api_key="sk-demo") as client:
        return list(
            client.chat.completions.create(
                model=GPT,
                messages=words("日本語で答えて"),
                stream=True,
                stream_options={"include_usage": True},
            )
        )


def openai_tools(url: str) -> Any:
    tools: Any = [{"type": "function", "function": WEATHER}]
    messages, answers = words("Málaga"), []
    with OpenAI(base_url=f"{url}/openai/v1", api_key="sk-demo") as client:
        for _ in range(2):
            answer = client.chat.completions.create(model=GPT, messages=messages, tools=tools)
            answers.append(answer)
            message = answer.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            for call in message.tool_calls or []:
                messages.append({"role": "tool", "tool_call_id": call.id, "content": "21 °C"})
    return answers


def openai_embeddings(url: str) -> Any:
    with OpenAI(base_url=f"{url}/openai/v1", api_key="sk-demo") as client:
        return client.embeddings.create(model="text-embedding-3-small", input=["one", "two"])


def openai_upload(url: str) -> Any:
    with OpenAI(base_url=f"{url}/openai/v1", api_key="sk-demo") as client:
        file = client.files.create(file=("naïve.txt", b"any bytes: \0\xff"), purpose="user_data")
        return [file, client.files.content(file.id).content]


def openai_responses_stream(url: str) -> Any:
    async def ask() -> Any:
        async with AsyncOpenAI(base_url=f"{url}/openai/v1", api_key="sk-demo") as client:
            stream = await client.responses.create(model=GPT, input="Hei på deg", stream=True)
            return [event async for event in stream]

    return asyncio.run(ask())


def anthropic_message(url: str) -> Any:
    with Anthropic(base_url=f"{url}/anthropic", api_key="sk-ant-demo") as client:
        return client.messages.create(
            model=CLAUDE, max_tokens=99, messages=words("What is a take?")
        )


def anthropic_stream(url: str) -> Any:
    async def ask() -> Any:
        async with (
            AsyncAnthropic(base_url=f"{url}/anthropic", api_key="sk-ant-demo") as client,
            client.messages.stream(
                model=CLAUDE, max_tokens=99, messages=words("Grüß dich")
            ) as stream,
        ):
            return [event async for event in stream]

    return asyncio.run(ask())


def anthropic_tools(url: str) -> Any:
    tool: Any = {"name": "weather", "input_schema": CITY}
    with Anthropic(base_url=f"{url}/anthropic", api_key="sk-ant-demo") as client:
        return list(
            client.messages.create(
                model=CLAUDE, max_tokens=99, messages=words("Málaga"), tools=[tool], stream=True
            )
        )


def wire(url: str) -> Any:
    """The body of a stream as sent, with the sizes of its HTTP chunks."""
    body = json.dumps({"model": GPT, "messages": words("日本語"), "stream": True}).encode()
    parts = urlsplit(url)
    head = (
        f"POST /openai/v1/chat/completions HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        "Authorization: Bearer sk-demo\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    with socket.create_connection((parts.hostname or "", parts.port or 80)) as connection:
        connection.sendall(head.encode() + body)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    return answer.partition(b"\r\n\r\n")[2]


ROWS: list[tuple[str, str, Callable[[str], Any]]] = [
    ("openai", "chat completion", openai_chat),
    ("openai", "chat completion, streamed", openai_stream),
    ("openai", "tool call and its result", openai_tools),
    ("openai", "embeddings", openai_embeddings),
    ("openai", "file upload and download", openai_upload),
    ("openai", "Responses API, streamed", openai_responses_stream),
    ("anthropic", "message", anthropic_message),
    ("anthropic", "message, streamed", anthropic_stream),
    ("anthropic", "tool use, streamed", anthropic_tools),
    ("socket", "bytes and chunk boundaries of a stream", wire),
]


@contextmanager
def tapeway(mode: str, upstream: str, store: str) -> Iterator[dict[str, Any]]:
    """A running proxy in that mode, as its ready line describes it."""
    routes = ["--route", f"openai={upstream}", "--route", f"anthropic={upstream}"]
    listen = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--log-level", "warning"]
    program = str(Path(sys.executable).with_name("tapeway"))
    command = [program, "serve", "--mode", mode, "--store", store]
    process = subprocess.Popen([*command, *routes, *listen], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            sys.exit(f"tapeway serve did not start: exit code {process.wait()}")
        yield json.loads(line)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()


def connections(admin: str) -> int:
    """How many connections to the upstream the proxy has opened."""
    with urlopen(f"{admin}/api/v1/status") as answer:  # noqa: S310  the proxy's own address
        return int(json.load(answer)["upstream_connections"])


def size(result: Any) -> str:
    if isinstance(result, bytes):
        return f"{len(result)} bytes"
    return f"{len(result)} objects" if isinstance(result, list) else "1 object"


def compare(before: list[Any], after: list[Any], opened: int) -> bool:
    """Print a row for each call; return whether all rows are equal."""
    print(f"{'client':<10} {'what was compared':<40} {'recorded':>12}  replayed")
    rows = [
        (client, what, size(old), old == new)
        for (client, what, _), old, new in zip(ROWS, before, after, strict=True)
    ]
    rows.append(("tapeway", "connections to the upstream in replay", str(opened), opened == 0))
    for client, what, amount, equal in rows:
        print(f"{client:<10} {what:<40} {amount:>12}  {'equal' if equal else 'DIFFERENT'}")
    return all(equal for *_, equal in rows)


def main() -> int:
    """Record every row, replay every row, print which are equal."""
    with tempfile.TemporaryDirectory() as store:
        with ThreadedStandIn() as upstream, tapeway("record", upstream.url, store) as ready:
            print(f"recording  {ready['proxy']} in front of {upstream.url}")
            recorded = [call(ready["proxy"]) for _, _, call in ROWS]
        print("stopped    the upstream")
        with tapeway("replay", upstream.url, store) as ready:
            print(f"replaying  {ready['proxy']} with nothing behind it\n")
            replayed = [call(ready["proxy"]) for _, _, call in ROWS]
            opened = connections(ready["admin"])
    return 0 if compare(recorded, replayed, opened) else 1


if __name__ == "__main__":
    sys.exit(main())
