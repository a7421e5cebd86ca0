"""A client that was told to wait and ask again does the same in replay, without the wait."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import anthropic
import openai
import pytest

from tests.clients.end_to_end.leaks import Leaks
from tests.clients.end_to_end.process import Tapeway
from tests.support.serving_thread import serving

HELLO = {"role": "user", "content": "hello"}
CHAT = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}
    ],
}
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "hi"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
BUSY = {"type": "error", "error": {"type": "rate_limit_error", "message": "busy"}}


class Busy(BaseHTTPRequestHandler):
    """Has no time at first, and answers who asks again."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["x-stainless-retry-count"] == "0":
            self._answer(429, BUSY, {"Retry-After": "20"})
        else:
            self._answer(200, MESSAGE if "messages" in self.path else CHAT, {})

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, status: int, body: object, fields: dict[str, str]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        for name, value in (fields | {"Content-Type": "application/json"}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def busy() -> Iterator[str]:
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Busy)) as server:
        yield f"http://127.0.0.1:{server.server_port}"


def ask_openai(proxy: str, key: str) -> str:
    with openai.OpenAI(base_url=f"{proxy}/openai/v1", api_key=key) as client:
        return client.chat.completions.create(model="m", messages=[HELLO]).id  # type: ignore[list-item]


def ask_anthropic(proxy: str, key: str) -> str:
    with anthropic.Anthropic(base_url=f"{proxy}/anthropic", api_key=key) as client:
        return client.messages.create(model="m", max_tokens=9, messages=[HELLO]).id  # type: ignore[list-item]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ask", "module"),
    [(ask_openai, "openai._base_client"), (ask_anthropic, "anthropic._base_client")],
    ids=["openai", "anthropic"],
)
def test_a_client_retries_in_replay_as_it_did_and_does_not_wait(
    ask: Callable[[str, str], str],
    module: str,
    tmp_path: Path,
    leaks: Leaks,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = leaks.secret("the key")
    waited: list[float] = []
    # The client's own clock alone: the servers of this test need theirs.
    clock = SimpleNamespace(**{**vars(time), "sleep": waited.append})
    monkeypatch.setattr(f"{module}.time", clock)
    with busy() as upstream:
        routes = ("--route", f"openai={upstream}", "--route", f"anthropic={upstream}")
        with Tapeway(tmp_path, "--mode", "record", *routes, name="recording") as proxy:
            live = ask(proxy.proxy, key)
            leaks.pages |= proxy.let_out()
    assert waited == [20]
    waited.clear()
    with Tapeway(tmp_path, "--mode", "replay", name="replaying") as proxy:
        assert ask(proxy.proxy, key) == live
        (report,) = json.loads(proxy.admin("GET", "/api/v1/report"))["cassettes"]
        entries = json.loads(proxy.admin("GET", "/api/v1/journal"))["entries"]
        leaks.pages |= proxy.let_out()

    assert waited == [0.001]
    assert (report["replayed"], report["retries"], report["misses"]) == (1, 1, [])
    assert report["unused"] == []
    assert [(entry["status"], entry["attempt"]) for entry in entries] == [(200, 2), (429, 1)]
