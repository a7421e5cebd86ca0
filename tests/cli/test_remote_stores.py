"""Commands on another tapeway as the store: what it is called with, wherever that is said."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.cli.invocation import run
from tests.support.serving_thread import serving

TOKEN = "the-token-of-the-far-side"


class Door(HTTPServer):
    """Lets nobody in, and notes who asked with what."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Refusal)
        self.asked: set[str | None] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Refusal(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Door)
        self.server.asked.add(self.headers["Authorization"])
        self.send_response(401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def door() -> Iterator[Door]:
    with serving(Door()) as door:
        yield door


def test_the_token_of_the_file_is_sent(
    door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tapeway.toml").write_text(f'store = "{door.url}"\nstore_token = "{TOKEN}"\n')
    for command in (["ls"], ["verify"], ["show", "x"], ["scan", "x"], ["convert", "x", "y.json"]):
        code, *said = run(capsys, *command)
        assert code == 2
        assert TOKEN not in "".join(said)
        assert door.asked == {f"Bearer {TOKEN}"}, command
        door.asked.clear()


def test_the_token_of_a_flag_is_sent(
    door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(capsys, "ls", "--store", door.url, "--store-token", TOKEN)[0] == 2
    assert door.asked == {f"Bearer {TOKEN}"}


def test_a_token_of_one_store_is_not_sent_to_another(
    door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TAPEWAY_STORE_TOKEN", TOKEN)
    run(capsys, "show", f"{door.url}#x", "--store", "http://127.0.0.1:1")
    assert door.asked == {None}
    door.asked.clear()
    run(capsys, "show", f"{door.url}#x")
    assert door.asked == {f"Bearer {TOKEN}"}
