"""`tapeway run --tls`: programs call services by their own names, and nobody sets a base URL."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme
from aiohttp import web

from tapeway.testing import StandIn
from tests.server.websocket.gemini_service import answer_gemini
from tests.server.websocket.websocket_service import serving
from tests.support.aws_signatures import is_signed_by
from tests.support.canary import sightings
from tests.support.company import KEYS, Network, company

PLAIN = """
import asyncio, json, os, ssl, sys, urllib.request
import aiohttp, httpx, requests

BODY = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": sys.argv[1]}]}
URL = "https://api.openai.com/v1/chat/completions"
KEY = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}

def by_urllib():
    request = urllib.request.Request(URL, json.dumps(BODY).encode(), {"Content-Type": "application/json", **KEY})
    return urllib.request.urlopen(request).read()

async def by_aiohttp():
    async with aiohttp.ClientSession(trust_env=True) as session:
        async with session.post(URL, json=BODY, headers=KEY) as answer:
            return await answer.read()

asked = [
    by_urllib(),
    requests.post(URL, json=BODY, headers=KEY).content,
    httpx.post(URL, json=BODY, headers=KEY).content,
    asyncio.run(by_aiohttp()),
]
print([json.loads(each)["choices"][0]["message"]["content"] for each in asked])
"""
SDKS = """
import sys
import anthropic, boto3, openai
from google import genai

said = []
messages = [{"role": "user", "content": sys.argv[1]}]
with openai.OpenAI(max_retries=0) as client:
    said.append(client.chat.completions.create(model="gpt-4o-mini", messages=messages).choices[0].message.content)
    parts = client.chat.completions.create(model="gpt-4o-mini", messages=messages, stream=True)
    said.append("".join(each.choices[0].delta.content or "" for each in parts if each.choices))
with anthropic.Anthropic(max_retries=0) as client:
    with client.messages.stream(model="claude-sonnet-5", max_tokens=99, messages=messages) as stream:
        said.append(stream.get_final_text())
client = genai.Client()
said.append(client.models.generate_content(model="gemini-3-flash", contents=sys.argv[1]).text)
client = boto3.client("bedrock-runtime")
asked = dict(modelId="anthropic.claude-sonnet-5-v1:0", messages=[{"role": "user", "content": [{"text": sys.argv[1]}]}])
said.append(client.converse(**asked)["output"]["message"]["content"][0]["text"])
parts = client.converse_stream(**asked)["stream"]
said.append("".join(each["contentBlockDelta"]["delta"]["text"] for each in parts if "contentBlockDelta" in each))
print(said)
"""


def python(folder: Path, program: str, *arguments: str) -> Sequence[str]:
    (folder / "program.py").write_text(program)
    return ("--", sys.executable, str(folder / "program.py"), *arguments)


async def test_plain_clients_are_recorded_and_replayed_offline(tmp_path: Path) -> None:
    async with company(tmp_path) as network:
        live = await network.run(*python(tmp_path, PLAIN, "hello"))
        assert live.code == 0, live.err
        asked = len(network.asked)
    replayed = await network.run(*python(tmp_path, PLAIN, "hello"), offline=True)

    assert (replayed.code, replayed.out) == (0, live.out), replayed.err
    assert "hello" in live.out
    assert (asked, live.report["bypassed"], replayed.report["bypassed"]) == (1, [], [])


@pytest.mark.slow
async def test_sdks_are_recorded_and_replayed_with_their_own_signatures(tmp_path: Path) -> None:
    async with company(tmp_path) as network:
        live = await network.run(*python(tmp_path, SDKS, "hello"))
        assert live.code == 0, live.err
        signed = [request for request in network.asked if "/model/" in request.target]
        places = {str(file): file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    replayed = await network.run(*python(tmp_path, SDKS, "hello"), offline=True)

    assert (replayed.code, replayed.out) == (0, live.out), replayed.err
    assert len(signed) == 2
    assert all(is_signed_by(request, KEYS) for request in signed)
    places |= {"out": live.out.encode(), "err": live.err.encode()}
    assert sightings({"the password": network.password, **KEYS}, places) == []


SOCKET = """
import json, os
from websockets.sync.client import connect

key = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
with connect("wss://api.openai.com/v1/responses", additional_headers=key) as socket:
    socket.send(json.dumps({"type": "response.create", "model": "gpt-5", "input": "hello"}))
    for message in socket:
        event = json.loads(message)
        print(event["type"], event.get("delta", ""))
        if event["type"] == "response.completed":
            break
"""
VERTEX = """
import os
from google import genai
from google.oauth2.credentials import Credentials

given = {"credentials": Credentials("ya29.live-token-0123456789")} if os.environ.get("LIVE") else {}
client = genai.Client(vertexai=True, project="project-1", location="us-central1", **given)
asked = {"model": "gemini-3-flash", "contents": "hello"}
print(client.models.generate_content(**asked).text)
print("".join(each.text for each in client.models.generate_content_stream(**asked)))
"""
REGIONAL = "us-central1-aiplatform.googleapis.com"


@pytest.mark.parametrize(("program", "calls"), [(SOCKET, 1), (VERTEX, 2)])
async def test_websocket_and_vertex_s_regions_are_replayed_offline(
    tmp_path: Path, program: str, calls: int
) -> None:
    async with company(tmp_path, REGIONAL) as network:
        live = await network.run(*python(tmp_path, program), environ={"LIVE": "yes"})
        assert live.code == 0, live.err
    replayed = await network.run("--strict", *python(tmp_path, program), offline=True)

    assert (replayed.code, replayed.out) == (0, live.out), replayed.err
    assert replayed.report["bypassed"] == []
    assert [cassette["replayed"] for cassette in replayed.report["cassettes"]] == [calls]


LIVE = """
import asyncio, json
from google import genai

async def talk():
    client, said = genai.Client(), []
    config = {"response_modalities": ["TEXT"]}
    async with client.aio.live.connect(model="gemini-live-2.5", config=config) as session:
        for text in ("hello", "and again"):
            await session.send_client_content(turns={"role": "user", "parts": [{"text": text}]})
            async for message in session.receive():
                said.append(message.model_dump(mode="json", exclude_none=True))
    return said

print(json.dumps(asyncio.run(talk())))
"""


@pytest.mark.slow
async def test_gemini_s_live_sessions_are_replayed_offline(tmp_path: Path) -> None:
    async with serving(answer_gemini) as service:
        others = {"generativelanguage.googleapis.com": urlsplit(service.url).port or 0}
        async with company(tmp_path, others=others) as network:
            live = await network.run(*python(tmp_path, LIVE))
            assert live.code == 0, live.err
    for _ in range(2):
        replayed = await network.run("--strict", *python(tmp_path, LIVE), offline=True)
        assert (replayed.code, replayed.out) == (0, live.out), replayed.err

    assert "to and again" in live.out


TELEMETRY = """
import urllib.request
print(urllib.request.urlopen("https://telemetry.example.com/v1/models").status)
"""


async def test_other_hosts_are_tunnelled_through_the_outer_proxy_and_named(tmp_path: Path) -> None:
    async with company(tmp_path) as network:
        trusted = {"SSL_CERT_FILE": str(tmp_path / "company.pem")}
        finished = await network.run(*python(tmp_path, TELEMETRY), environ=trusted)

        assert (finished.code, finished.out) == (0, "200\n"), finished.err
        assert network.tunnels == [b"CONNECT telemetry.example.com:443 HTTP/1.1"]
        assert finished.report["bypassed"] == ["telemetry.example.com:443"]
        assert "bypassed: telemetry.example.com:443" in finished.err
        assert network.password not in finished.err


async def test_offline_refuses_other_hosts_and_names_them(tmp_path: Path) -> None:
    network = Network(tmp_path)
    finished = await network.run(*python(tmp_path, TELEMETRY), offline=True)

    assert finished.code == 1
    assert "403" in finished.err
    assert finished.report["bypassed"] == ["telemetry.example.com:443"]


ENVIRONMENT = """
import json, os, ssl
own = open("/proc/self/environ").read()
bundle = os.environ["SSL_CERT_FILE"]
print(json.dumps({
    "environ": dict(os.environ),
    "authorities": open(bundle).read().count("BEGIN CERTIFICATE"),
    "keys": open(bundle).read().count("PRIVATE"),
    "mode": os.stat(bundle).st_mode & 0o777,
    "files": os.listdir(os.path.dirname(bundle)),
}))
"""


async def test_every_variable_names_the_bundle_and_no_base_url_is_set(tmp_path: Path) -> None:
    (tmp_path / "mine.pem").write_bytes(trustme.CA().cert_pem.bytes())
    mine = str(tmp_path / "mine.pem")
    preset = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO")
    network = Network(tmp_path)
    finished = await network.run(
        *python(tmp_path, ENVIRONMENT),
        offline=True,
        environ={
            **dict.fromkeys(preset, mine),
            "SSL_CERT_DIR": "/etc/ssl/certs",
            "NO_PROXY": "api.openai.com,intern.example.com",
        },
    )
    said = json.loads(finished.out)
    environ, bundle = said["environ"], said["environ"]["SSL_CERT_FILE"]

    assert {environ[name] for name in (*preset, "CURL_CA_BUNDLE", "AWS_CA_BUNDLE")} == {bundle}
    assert {environ[name] for name in ("DENO_CERT", "CODEX_CA_CERTIFICATE")} == {bundle}
    assert "SSL_CERT_DIR" not in environ
    assert environ["NODE_USE_ENV_PROXY"] == "1"
    assert environ["HTTPS_PROXY"] == environ["https_proxy"]
    assert environ["HTTPS_PROXY"].startswith("http://127.0.0.1:")
    assert not [name for name in environ if name.endswith("_BASE_URL")]
    assert said["authorities"] >= 2
    assert (said["keys"], said["files"]) == (0, ["authorities.pem"])
    assert not Path(bundle).exists()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_curl_and_a_route_of_one_s_own(tmp_path: Path) -> None:
    command = (
        *("--route=svc=https://svc.example.com", "--", "curl", "-sS", "-i"),
        *("https://svc.example.com/v1/models", "https://api.openai.com/v1/models"),
    )
    async with company(tmp_path) as network:
        live = await network.run(*command)
        assert live.code == 0, live.err
    replayed = await network.run(*command, offline=True)

    assert live.out.lower().count("tapeway-outcome: recorded") == 2
    assert replayed.out.lower().count("tapeway-outcome: replayed") == 2, replayed.err


async def test_a_route_with_another_url_still_has_the_provider_s_host(tmp_path: Path) -> None:
    async with StandIn() as services:
        trustme.CA().cert_pem.write_to_path(str(tmp_path / "company.pem"))
        finished = await Network(tmp_path).run(
            *("--mode=record", f"--route=openai={services.url}"),
            *python(tmp_path, PLAIN, "hello"),
        )

    assert finished.code == 0, finished.err
    assert len(services.requests) == 4


GIT = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}


def git(folder: Path, *arguments: str) -> str:
    names = ("-c", "user.name=a", "-c", "user.email=a@b.test")
    done = subprocess.run(
        ("git", *names, *arguments), cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout


@asynccontextmanager
async def git_server(folder: Path) -> AsyncIterator[int]:
    """Serves a repository of one commit, by git's own program for that."""
    work = folder / "work"
    work.mkdir()
    git(work, "init", "-q", "-b", "main")
    (work / "notes.txt").write_text("what is cloned\n" * 1000)
    git(work, "add", ".")
    git(work, "commit", "-q", "-m", "first")
    git(folder, "clone", "-q", "--bare", str(work), "project.git")

    async def answer(request: web.Request) -> web.Response:
        fields = {f"HTTP_{k.upper().replace('-', '_')}": v for k, v in request.headers.items()}
        body = await request.read()
        process = await asyncio.create_subprocess_exec(
            *("git", "http-backend"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={
                **{"PATH": os.environ["PATH"], "HOME": str(folder), **fields},
                **{"GIT_PROJECT_ROOT": str(folder), "GIT_HTTP_EXPORT_ALL": "1"},
                **{"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory"},
                **{"GIT_CONFIG_VALUE_0": "*", "PATH_INFO": request.path},
                **{"REQUEST_METHOD": request.method, "QUERY_STRING": request.query_string},
                **{"CONTENT_TYPE": request.content_type, "CONTENT_LENGTH": str(len(body))},
            },
        )
        out, _ = await process.communicate(body)
        head, _, content = out.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        status = int(headers.pop("Status", "200").split()[0])
        return web.Response(status=status, headers=headers, body=content)

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", answer)
    runner = web.AppRunner(app, auto_decompress=False)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield runner.addresses[0][1]
    await runner.cleanup()


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
async def test_git_clones_offline_what_it_cloned_before(tmp_path: Path) -> None:
    environ = {**GIT, "HOME": str(tmp_path)}
    clone = (
        *("--route=code=https://code.example.com", "--"),
        *("git", "clone", "-q", "https://code.example.com/project.git"),
    )
    async with (
        git_server(tmp_path) as port,
        company(tmp_path, others={"code.example.com": port}) as network,
    ):
        live = await network.run(*clone, "live", environ=environ)
        assert live.code == 0, live.err
    replayed = await network.run("--strict", *clone, "again", offline=True, environ=environ)

    assert replayed.code == 0, replayed.err
    assert replayed.report["bypassed"] == []
    assert git(tmp_path / "again", "rev-parse", "HEAD") == git(
        tmp_path / "work", "rev-parse", "HEAD"
    )
    assert (tmp_path / "again" / "notes.txt").read_text().startswith("what is cloned")
