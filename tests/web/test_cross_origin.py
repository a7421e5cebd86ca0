"""The script of a page on another origin reads what tapeway answers, in Chromium."""

import http.server
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tapeway.embedded.deck import serve
from tests.support.serving_thread import serving

ASK = """async ([url, path]) => {
    const answer = await fetch(url + path, {
        method: "POST",
        headers: { authorization: "Bearer none", "content-type": "application/json" },
        body: "{}",
    });
    const { error } = await answer.json();
    return [
        answer.status,
        answer.headers.get("tapeway-outcome"),
        error.code,
        error.message,
        answer.headers.get("x-request-id") !== null,
    ];
}"""


class _Blank(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def other_origin() -> Iterator[str]:
    """The address of an empty page on a port of its own."""
    with serving(http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Blank)) as server:
        yield f"http://127.0.0.1:{server.server_port}/"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/openai/v1/chat/completions", [400, "miss", "replay_miss"]),
        ("/nowhere", [404, "error", "no_route"]),
    ],
)
def test_a_script_reads_why_it_got_no_recording(
    path: str, expected: list[object], chromium: Browser, other_origin: str, tmp_path: Path
) -> None:
    with serve(store=str(tmp_path), mode="replay") as deck:
        tab = chromium.new_page()
        tab.goto(other_origin)
        status, outcome, code, message, has_id = tab.evaluate(ASK, [deck.url(), path])
        tab.close()

    assert [status, outcome, code] == expected
    assert path.removeprefix("/openai") in message
    assert has_id
