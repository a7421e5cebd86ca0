"""What tapeway writes, AgentTape itself loads and replays: with and without PyYAML, and in JSON."""

import base64
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tapeway.core.http.headers import stored_request_headers
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Headers, Request, Response, ResponseHead
from tapeway.formats.cassette_file import JSON, YAML, Serializer
from tapeway.formats.native import document
from tests.formats.agenttape.cassettes import NAMES, loaded
from tests.support import fork_server
from tests.support.markdown import ROOT
from tests.support.thoroughness import step

pytestmark = pytest.mark.usefixtures("one_certificate")

HEAD = CassetteHead("2026-11-22T10:00:00Z", "run", {"tapeway_version": "0", "tags": ["no", "1e5"]})
HTTPX = (
    (b"Host", b"api.example.com"),
    (b"Accept", b"*/*"),
    (b"Accept-Encoding", b"gzip, deflate"),
    (b"User-Agent", b"python-httpx/0.28.1"),
)
REQUESTS = (
    (b"User-Agent", b"python-requests/2.34.2"),
    (b"Accept-Encoding", b"gzip, deflate"),
    (b"Accept", b"*/*"),
    (b"Connection", b"keep-alive"),
)
PLAIN = b"text/plain; charset=utf-8"
READERS = {"json": (JSON, ""), "yaml": (YAML, ""), "yaml without PyYAML": (YAML, "1")}

BODIES: dict[str, tuple[bytes, bytes]] = {
    "JSON in its own layout": (b"application/json", b'{\n  "a" : [1, 2.50]\n}'),
    "small floats": (b"application/json", b'{"a": 1e-07, "b": [1e-05, 1e+20, -0.0, 2.5e-8]}'),
    "control characters": (b"application/json", json.dumps({"a": "\x00\x1b[1m\x7f\r"}).encode()),
    "line breaks of all sorts": (PLAIN, "a\x85b\u2028c\u2029d\re\r\nf".encode()),
    "several lines in a list": (b"application/json", b'{"a": ["one\\ntwo", "three\\n", "\\nx"]}'),
    "several lines": (PLAIN, b"line\n  indented\n\nlast\n\n"),
    "trailing blanks": (b"application/json", b'{"a": "abc ", "b": "x  \\ny ", "c": " "}'),
    "what looks like something else": (
        b"application/json",
        b'{"a": "1.", "b": "0b101", "c": "1_000.5", "d": "no", "e": "1e5", "f": "12:30", "g": "~"}',
    ),
    "names that look like something else": (
        b"application/json",
        b'{"no": 1, "1": 2, "": 3, "a: b": 4}',
    ),
    "quotes": (b"application/json", b'{"a": "say \\"it\\": # no comment", "b": ["- \\"x\\": 1"]}'),
    "octets": (b"application/octet-stream", bytes(range(256))),
    "nothing": (PLAIN, b""),
    "words of another script": (PLAIN, "äöü 😀 \ufeff".encode()),
    "a stream": (b"text/event-stream", b'data: {"a": "b "}\n\ndata: [DONE]\n\n'),
}


def _recorded(index: int, name: str, client: Headers, path: str) -> Interaction:
    kind, body = BODIES[name]
    asked = b'{"name": "%b", "n": 1.50}' % name.encode()
    headers = (*client, (b"Content-Length", b"1"), (b"Content-Type", b"application/json"))
    request = Request(
        route="openai",
        method="POST",
        target=f"/v1/{path}?q=a%20b",
        headers=stored_request_headers(headers),
        body=asked,
        base="https://api.example.com",
    )
    pieces = [body[:5], body[5:]] if kind == b"text/event-stream" else [body]
    head = ResponseHead(
        201,
        "Created",
        ((b"Content-Type", kind), (b"Set-Cookie", b"a=1"), (b"Set-Cookie", b"b=2"), (b"X", b"y")),
        "chunked" if len(pieces) > 1 else "length",
    )
    chunks = [(piece, float(at)) for at, piece in enumerate(pieces)]
    response = Response.of_chunks(head, chunks, verdict="complete")
    return Interaction(index, request, response, latency_ms=1.5)


def _plan(recorded: Interaction, client: str) -> dict[str, str]:
    request = recorded.request
    return {
        "client": client,
        "method": request.method,
        "url": request.url,
        "type": "application/json",
        "body": base64.b64encode(request.body).decode(),
    }


def _python() -> tuple[str, ...]:
    """An interpreter that has imported the clients, which takes them longer than to play.

    OpenAI's is one: AgentTape imports it where it is installed.
    """
    return (sys.executable, "-IS", str(fork_server.with_clients() / "python"))


def _played(folder: Path, cassette: Path, plan: list[dict[str, str]], forced: str) -> Any:
    (folder / "plan.json").write_text(json.dumps(plan))
    ran = subprocess.run(
        [*_python(), "-m", "tests.formats.agenttape.player", cassette, folder / "plan.json"],
        cwd=ROOT,
        env={**os.environ, "AGENTTAPE_FORCE_STDLIB_YAML": forced},
        capture_output=True,
        check=False,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.parametrize("reader", [*READERS][:: step(3)])
def test_agenttape_replays_what_was_recorded_here(reader: str, tmp_path: Path) -> None:
    serializer, forced = READERS[reader]
    clients = {"httpx": HTTPX, "requests": REQUESTS}
    made = [
        (_recorded(at, name, clients[client], client), client, BODIES[name][1])
        for at, (name, client) in enumerate((n, c) for n in BODIES for c in clients)
    ]
    path = tmp_path / f"ours.{serializer.name}"
    path.write_bytes(
        serializer.save(StoredCassette(HEAD, tuple([interaction for interaction, _, _ in made])))
    )

    answers = _played(
        tmp_path, path, [_plan(interaction, client) for interaction, client, _ in made], forced
    )

    for (recorded, client, body), answer in zip(made, answers, strict=True):
        assert answer.get("status") == 201, (recorded.request.body, client, answer)
        got = base64.b64decode(answer["body"])
        if serializer is JSON and body == BODIES["a stream"][1]:
            # It passes over our text in lines, and refuses to replay to a client that streams anyway.
            assert got == b""
        elif got != body:
            # It writes JSON anew, in the one layout that Python has.
            assert json.dumps(json.loads(body)) == json.dumps(json.loads(got))
        assert answer["cookies"] == {"a": "1", "b": "2"}


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_agenttape_reads_its_own_files_after_tapeway_wrote_them(
    reader: str, tmp_path: Path
) -> None:
    serializer, forced = READERS[reader]
    path = tmp_path / f"again.{serializer.name}"
    path.write_bytes(serializer.save(loaded("0.1.8/http.yaml")))
    url = "http://127.0.0.1:18474"
    plan = [
        {"client": "httpx", "method": "GET", "url": f"{url}{target}", "type": "", "body": ""}
        for target in ("/json?b=1&timestamp=8&a=2%20x", "/text", "/big", "/missing")
    ]
    body = base64.b64encode(b'{"note": "to c@example.com"}').decode()
    plan.append(
        {"client": "requests", "method": "POST", "url": f"{url}/echo", "type": "", "body": body}
    )
    plan[-1]["type"] = "application/json"

    answers = _played(tmp_path, path, plan, forced)

    assert [answer.get("status") for answer in answers] == [200, 200, 200, 404, 200]
    assert json.loads(base64.b64decode(answers[0]["body"]))["tiny"] == 1e-07
    assert base64.b64decode(answers[1]["body"]) == b"line one\nline two \n\n"


@pytest.mark.parametrize("serializer", [JSON, YAML], ids=["json", "yaml"])
def test_every_document_of_agenttape_comes_back_from_it_the_same(
    serializer: Serializer, tmp_path: Path
) -> None:
    code = (
        "import json, sys, agenttape.cassette as c, pathlib\n"
        "for each in sys.argv[1:]:\n"
        "    print(json.dumps(c.load_raw(pathlib.Path(each))['interactions']))\n"
    )
    paths = []
    for at, name in enumerate(NAMES):
        cassette = loaded(name)
        paths.append(tmp_path / f"{at}.{serializer.name}")
        paths[-1].write_bytes(serializer.save(cassette))
    for forced in ("", "1"):
        ran = subprocess.run(
            [sys.executable, "-c", code, *paths],
            env={**os.environ, "AGENTTAPE_FORCE_STDLIB_YAML": forced},
            capture_output=True,
            check=True,
            text=True,
        )
        for name, line in zip(NAMES, ran.stdout.splitlines(), strict=True):
            documents = [document.encode(interaction) for interaction in loaded(name).interactions]
            assert json.loads(line) == documents, (name, forced)


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_agenttape_replays_the_turns_of_an_agent_whose_prompt_is_written_once(
    reader: str, tmp_path: Path
) -> None:
    serializer, forced = READERS[reader]
    messages: list[dict[str, str]] = []
    made: list[Interaction] = []
    for turn in range(3):
        messages.append({"role": "user", "content": f"Question {turn}: # why? " * 60})
        body = {"system": "You are careful: # always. " * 50, "messages": messages}
        plain = _recorded(turn, "trailing blanks", HTTPX, "messages")
        made.append(replace(plain, request=replace(plain.request, body=json.dumps(body).encode())))
    path = tmp_path / f"agent.{serializer.name}"
    path.write_bytes(serializer.save(StoredCassette(HEAD, tuple(made))))

    answers = _played(tmp_path, path, [_plan(interaction, "httpx") for interaction in made], forced)

    assert path.read_bytes().count(b"You are careful") == 50
    assert [answer.get("status") for answer in answers] == [201, 201, 201], answers
