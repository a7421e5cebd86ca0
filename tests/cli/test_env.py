import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event

import pytest

from tapeway.embedded.deck import Deck, serve
from tapeway.providers.catalogue import PROVIDERS
from tapeway.providers.clients import CLIENTS_WITHOUT_VARIABLE
from tests.cli.invocation import run_tapeway
from tests.support.serving_thread import serving

PROJECT = Path(__file__).parents[2]
ROOT = "http://127.0.0.1:8080"


@pytest.fixture(autouse=True)
def _nothing_runs(monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int) -> None:
    """No tapeway of another test answers."""
    monkeypatch.setenv("TAPEWAY_ADMIN_LISTEN", f"127.0.0.1:{unused_tcp_port}")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    return run_tapeway(capsys, "env", *arguments)


def exports(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, str]:
    code, out, _ = run(capsys, *arguments)
    assert code == 0
    found = {}
    for line in out.splitlines():
        command, assignment = shlex.split(line)
        name, _, value = assignment.partition("=")
        assert command == "export"
        found[name] = value
    return found


def test_each_sdk_is_pointed_at_its_own_route(capsys: pytest.CaptureFixture[str]) -> None:
    found = exports(capsys)

    assert found["OPENAI_BASE_URL"] == f"{ROOT}/openai/v1"
    assert found["ANTHROPIC_BASE_URL"] == f"{ROOT}/anthropic"
    assert found["GOOGLE_GEMINI_BASE_URL"] == f"{ROOT}/gemini"
    assert found["OLLAMA_HOST"] == f"{ROOT}/ollama"
    assert found["GROQ_BASE_URL"] == f"{ROOT}/groq"
    assert set(found) == {name for p in PROVIDERS.values() for name, _ in p.variables}


def test_only_one_provider_s_variables_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert exports(capsys, "--provider", "groq") == {
        "GROQ_BASE_URL": f"{ROOT}/groq",
        "GROQ_API_BASE": f"{ROOT}/groq/openai/v1",
    }


def test_a_cassette_is_part_of_the_base_url(capsys: pytest.CaptureFixture[str]) -> None:
    found = exports(capsys, "--cassette", "suite/case-1", "--provider", "ollama")

    assert found["OLLAMA_HOST"] == f"{ROOT}/@suite%2Fcase-1/ollama"


@pytest.mark.parametrize(
    ("listen", "root"),
    [
        ("127.0.0.1:9000", "http://127.0.0.1:9000"),
        ("0.0.0.0:9000", "http://127.0.0.1:9000"),
        ("[::]:9000", "http://[::1]:9000"),
        ("sidecar:9000", "http://sidecar:9000"),
    ],
)
def test_the_address_is_the_one_configured_as_a_client_reaches_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, listen: str, root: str
) -> None:
    monkeypatch.setenv("TAPEWAY_LISTEN", listen)

    assert exports(capsys, "--provider", "ollama")["OLLAMA_HOST"] == f"{root}/ollama"


def test_options_from_the_file_are_used(capsys: pytest.CaptureFixture[str]) -> None:
    Path("tapeway.toml").write_text('listen = "127.0.0.1:7000"\nroute = ["groq=off"]\n')

    found = exports(capsys)

    assert found["OPENAI_BASE_URL"] == "http://127.0.0.1:7000/openai/v1"
    assert "GROQ_BASE_URL" not in found


def test_an_upstream_that_is_one_provider_is_reached_at_the_root(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = exports(capsys, "--upstream", "https://api.openai.com", "--route", "anthropic")

    assert found["OPENAI_BASE_URL"] == f"{ROOT}/v1"
    assert found["ANTHROPIC_BASE_URL"] == f"{ROOT}/anthropic"
    assert "GROQ_BASE_URL" not in found


def test_an_upstream_of_no_known_provider_serves_all_providers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = exports(capsys, "--upstream", "http://gateway.example")

    assert found["OPENAI_BASE_URL"] == f"{ROOT}/v1"
    assert found["ANTHROPIC_BASE_URL"] == ROOT


@pytest.mark.parametrize(
    ("arguments", "base"),
    [
        (["--provider", "voyage"], f"{ROOT}/voyage"),
        (["--provider", "mine", "--route", "mine=http://host"], f"{ROOT}/mine"),
    ],
)
def test_a_route_without_variables_prints_its_base_url_as_a_comment(
    capsys: pytest.CaptureFixture[str], arguments: list[str], base: str
) -> None:
    code, out, _ = run(capsys, *arguments)

    assert code == 0
    assert out.startswith("# ")
    assert out.rstrip().endswith(base)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--provider", "grok"], "--provider: 'grok' is no route; use one of anthropic, "),
        (
            ["--provider", "groq", "--upstream", "https://api.openai.com"],
            "no route leads to groq: add --route groq",
        ),
        (["--cassette", "../x"], "--cassette: '../x' is no name of a cassette"),
        (["--listen", "127.0.0.1:0"], "--listen: port 0 is chosen when the proxy starts"),
        (["--listen", "nowhere"], "--listen: 'nowhere' is not an address"),
        (["--config", "no.toml"], "--config: there is no file no.toml"),
        (["--what"], "No such option '--what'."),
    ],
)
def test_what_cannot_be_printed_is_one_line_and_exit_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code, out, err = run(capsys, *arguments)

    assert (code, out) == (2, "")
    assert err.startswith(f"tapeway: {message}")
    assert err.count("\n") == 1


def test_clients_that_read_no_variable_are_named_if_notes_are_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPEWAY_LISTEN", "127.0.0.1:8080")
    _, out, err = run(capsys, "--provider", "gemini", "--notes")
    assert out.startswith("export ")
    assert err == (
        f'@ai-sdk/google: write createGoogleGenerativeAI({{ baseURL: "{ROOT}/gemini/v1beta" }})\n'
    )

    _, _, err = run(capsys, "--provider", "gemini")
    assert err == ""
    _, _, err = run(capsys, "--notes")
    named = [line.partition(": write ")[0] for line in err.splitlines()]
    assert named == [client.name for client in CLIENTS_WITHOUT_VARIABLE]
    _, _, err = run(capsys, "--route", "gemini=off", "--notes")
    assert "@ai-sdk/google " not in err
    assert "OPENAI_AGENTS_DISABLE_TRACING=1" in err


def test_the_page_names_the_same_clients() -> None:
    page = (PROJECT / "docs" / "run.md").read_text(encoding="utf-8")

    for client in CLIENTS_WITHOUT_VARIABLE:
        instead = client.instead.replace("{url}", f"http://127.0.0.1:8080/{client.provider}")
        assert f"| {client.name} | `{instead}` |" in page


@pytest.fixture
def running() -> Iterator[Deck]:
    with serve(store="memory:") as found:
        yield found


def test_a_running_tapeway_is_asked_where_its_proxy_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, running: Deck
) -> None:
    monkeypatch.setenv("TAPEWAY_ADMIN_LISTEN", running.admin_url.removeprefix("http://"))
    code, out, err = run(capsys, "--provider", "ollama")

    assert (code, err) == (0, "")
    assert f"export OLLAMA_HOST={running.proxy_url}/ollama\n" in out


def test_the_admin_api_that_a_variable_names_is_asked_whatever_is_configured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, running: Deck
) -> None:
    monkeypatch.setenv("TAPEWAY_ADMIN_URL", running.admin_url)
    monkeypatch.setenv("TAPEWAY_LISTEN", "127.0.0.1:9000")

    assert exports(capsys, "--provider", "ollama")["OLLAMA_HOST"].startswith(running.proxy_url)
    given = exports(capsys, "--provider", "ollama", "--listen", "127.0.0.1:9001")
    assert given["OLLAMA_HOST"] == "http://127.0.0.1:9001/ollama"


def test_it_says_what_it_assumes_where_no_tapeway_answers(
    capsys: pytest.CaptureFixture[str], unused_tcp_port: int
) -> None:
    code, out, err = run(capsys, "--provider", "ollama")

    assert code == 0
    assert f"export OLLAMA_HOST={ROOT}/ollama\n" in out
    place = f"http://127.0.0.1:{unused_tcp_port}"
    assert err == f"no tapeway could be asked at {place}: assuming that the proxy is at {ROOT}\n"


@pytest.mark.parametrize(
    ("place", "code", "reason"),
    [
        ("http://127.0.0.1:9", 1, "tapeway does not answer at http://127.0.0.1:9: "),
        ("nowhere", 2, "'nowhere' is no URL of an admin API: "),
        ("http://[x", 2, "'http://[x' is no URL of an admin API: "),
    ],
)
def test_it_assumes_nothing_where_the_tapeway_that_is_named_does_not_answer(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    code: int,
    reason: str,
) -> None:
    monkeypatch.setenv("TAPEWAY_ADMIN_URL", place)

    ended, out, err = run(capsys, "--provider", "ollama")

    assert (ended, out) == (code, "")
    assert err.startswith(f"tapeway: {reason}")
    assert "--listen prints the lines for an address without asking" in err


def test_the_admin_api_that_a_flag_names_is_named_too(
    capsys: pytest.CaptureFixture[str], unused_tcp_port: int
) -> None:
    code, out, err = run(capsys, "--admin-listen", f"127.0.0.1:{unused_tcp_port}")

    assert (code, out) == (1, "")
    assert f"tapeway does not answer at http://127.0.0.1:{unused_tcp_port}" in err


def test_a_tapeway_that_refuses_to_tell_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(store="memory:", admin_token="the-token-of-this-tapeway") as found:
        monkeypatch.setenv("TAPEWAY_ADMIN_URL", found.admin_url)
        monkeypatch.setenv("TAPEWAY_ADMIN_TOKEN", "another-token-than-this-one")
        code, out, err = run(capsys, "--provider", "ollama")

    assert (code, out) == (1, "")
    assert err.startswith(f"tapeway: {found.admin_url} answers: ")
    assert "token" in err


@pytest.mark.parametrize("answer", [b"<html>", b"[]", b"{}"])
def test_another_service_at_the_named_address_is_no_tapeway(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    with answering(answer) as place:
        monkeypatch.setenv("TAPEWAY_ADMIN_URL", place)
        code, out, err = run(capsys, "--provider", "ollama")

    assert (code, out) == (1, "")
    assert f"what answers at {place} is not the admin API of a tapeway" in err


def test_it_waits_for_a_tapeway_that_is_busy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = {"proxy": "http://127.0.0.1:9002", "base_urls": {}, "routes": {}, "keys": []}
    with answering(json.dumps(clients).encode(), after_s=2.5) as place:
        monkeypatch.setenv("TAPEWAY_ADMIN_URL", place)
        code, out, _ = run(capsys, "--provider", "ollama")

    assert code == 0
    assert out.startswith("export OLLAMA_HOST=http://127.0.0.1:9002/ollama\n")


@contextmanager
def answering(body: bytes, after_s: float = 0) -> Iterator[str]:
    """The URL of a service that answers everything so, as late as a busy machine does."""
    stopped = Event()

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            stopped.wait(after_s)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Answer)) as server:
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            stopped.set()


def test_an_address_that_is_configured_is_no_assumption(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPEWAY_LISTEN", "127.0.0.1:9000")

    code, _, err = run(capsys, "--provider", "ollama")

    assert (code, err) == (0, "")
