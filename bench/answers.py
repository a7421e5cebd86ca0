"""The requests of the comparison, and the answers that both servers send."""

import json
from typing import Any

STREAM_PATH = "/v1/stream"
JSON_PATH = "/v1/chat/completions"
LARGE_PATH = "/v1/files/large/content"
HUGE_PATH = "/v1/files/huge/content"
DIFFERENT = 2000
"""More different requests than fit into tapeway's cache of match keys."""

JSON_BODY = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "gpt-4.1",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello there!"}}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
    }
).encode()

EVENTS = [
    b'data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"token %d"}}]}\n\n' % number
    for number in range(200)
]

LARGE_BODY = bytes(range(256)) * (50 * 1024 * 4)
"""50 MiB that are no text."""

HUGE_SIZE = 1024**3
"""1 GiB, the length of what HUGE_PATH answers with, from a file."""

_HEAD = (
    "POST {path} HTTP/1.1\r\n"
    "Host: 127.0.0.1\r\n"
    "Accept: application/json\r\n"
    "Accept-Encoding: gzip, deflate\r\n"
    "Content-Type: application/json\r\n"
    "User-Agent: OpenAI/Python 3.54.0\r\n"
    "X-Stainless-Lang: python\r\n"
    "X-Stainless-Runtime: CPython\r\n"
    "X-Stainless-Retry-Count: 0\r\n"
    "Authorization: Bearer sk-bench-0123456789abcdef\r\n"
    "{more}"
    "Content-Length: {length}\r\n\r\n"
)

CLIENTS = {
    "openai": """\
Host: 127.0.0.1
Accept-Encoding: gzip, deflate, br, zstd
Connection: keep-alive
authorization: Bearer sk-bench-0123456789abcdef
accept: application/json
content-type: application/json
user-agent: OpenAI/Python 3.54.0
x-stainless-lang: python
x-stainless-package-version: 3.54.0
x-stainless-os: Linux
x-stainless-arch: x64
x-stainless-runtime: CPython
x-stainless-runtime-version: 3.11.7
x-stainless-async: false
x-stainless-retry-count: 0
x-stainless-read-timeout: 600""",
    "anthropic": """\
Host: 127.0.0.1
Accept-Encoding: gzip, deflate, br, zstd
Connection: keep-alive
x-stainless-timeout: 600
x-stainless-retry-count: 0
x-stainless-read-timeout: 600
Accept: application/json
Content-Type: application/json
User-Agent: Anthropic/Python 2.12.0
X-Stainless-Lang: python
X-Stainless-Package-Version: 2.12.0
X-Stainless-OS: Linux
X-Stainless-Arch: x64
X-Stainless-Runtime: CPython
X-Stainless-Runtime-Version: 3.11.7
Authorization: Bearer sk-bench-0123456789abcdef
X-Stainless-Async: false
anthropic-version: 2026-10-21""",
    "httpx": """\
Host: 127.0.0.1
Accept: */*
Accept-Encoding: gzip, deflate, br
Connection: keep-alive
User-Agent: python-httpx/0.28.1
Content-Type: application/json""",
    "node": """\
host: 127.0.0.1
connection: keep-alive
content-type: application/json
accept: */*
accept-language: *
sec-fetch-mode: cors
user-agent: node
accept-encoding: gzip, deflate""",
}
"""The header fields that real clients send, all but the length: the `openai` and `anthropic` packages,
`httpx`, and `fetch` of Node.js.
"""


def chat(number: int) -> dict[str, Any]:
    """What a chat request says; another number is another prompt."""
    return {
        "model": "gpt-4.1",
        "messages": [{"role": "user", "content": f"Say hello to number {number}, please."}],
        "temperature": 0.7,
    }


def follow_up(number: int, call: str) -> str:
    """The body of the request after an answer that called a tool, with the call's result."""
    said = chat(number)
    said["messages"] += [
        {"role": "assistant", "tool_calls": [{"id": call, "type": "function"}]},
        {"role": "tool", "tool_call_id": call, "content": "It is sunny there."},
    ]
    return json.dumps(said)


def call_answer(call: str) -> bytes:
    """The answer that calls a tool."""
    message = {"role": "assistant", "tool_calls": [{"id": call, "type": "function"}]}
    return json.dumps({"id": "chatcmpl-1", "choices": [{"message": message}]}).encode()


def respelled(number: int) -> str:
    """The body of a chat request, with its keys in another order and other blanks."""
    return json.dumps(dict(reversed(chat(number).items())), indent=1)


def request(path: str, number: int = 0, *fields: str, key: str = "", body: str = "") -> bytes:
    """A chat request as the OpenAI client writes it, or with this body.

    `fields` are further header fields, `key` is a credential in the body.
    """
    body = body or json.dumps(chat(number) | ({"api_key": key} if key else {}))
    more = "".join(f"{field}\r\n" for field in fields)
    return (_HEAD.format(path=path, length=len(body), more=more) + body).encode()


def request_of(client: str, number: int, *fields: str) -> bytes:
    """A chat request with the header fields of one of CLIENTS, and further ones."""
    body = json.dumps(chat(number))
    lines = (*CLIENTS[client].split("\n"), *fields, f"Content-Length: {len(body)}")
    return "\r\n".join([f"POST {JSON_PATH} HTTP/1.1", *lines, "", body]).encode()
