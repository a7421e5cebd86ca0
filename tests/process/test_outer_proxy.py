"""Processes behind a company's proxy, whose password they show nobody."""

import json
from pathlib import Path
from urllib.parse import quote, urlsplit

import openai
import pytest

from tapeway.testing import StandIn
from tests.process.serving import Tapeway
from tests.support import canary
from tests.support.forward_proxy import ForwardProxy, basic

HELLO = "hello through the proxy"


async def chat(tapeway: Tapeway) -> str | None:
    async with openai.AsyncOpenAI(
        base_url=f"{tapeway.proxy}/v1", api_key=tapeway.key, max_retries=0
    ) as client:
        answer = await client.chat.completions.create(
            model="gpt-4o-mini", messages=[{"role": "user", "content": HELLO}]
        )
    return answer.choices[0].message.content


@pytest.mark.parametrize("given", ["HTTP_PROXY", "TAPEWAY_UPSTREAM_PROXY", "a file"])
async def test_a_password_of_a_proxy_is_used_and_shown_nowhere(tmp_path: Path, given: str) -> None:
    password = canary.canary()
    async with (
        StandIn() as upstream,
        ForwardProxy(
            {"api.example.com": urlsplit(upstream.url).port or 0}, login=basic("bob", password)
        ) as proxy,
    ):
        url = proxy.url_of("bob", quote(password, safe=""))
        environ = {given: url}
        if given == "a file":
            (tmp_path / "proxy").write_text(url + "\n")
            environ = {"TAPEWAY_UPSTREAM_PROXY_FILE": str(tmp_path / "proxy")}
        options = ("--upstream", "http://api.example.com", "--log-level", "debug")
        async with Tapeway(tmp_path, *options, environ=environ) as tapeway:
            assert await chat(tapeway)
            asked = len(proxy.heads)
            assert await chat(tapeway)
            assert len(proxy.heads) == asked == 1
            assert proxy.asked == [b"POST http://api.example.com/v1/chat/completions HTTP/1.1"]
            told = [
                await tapeway.admin("GET", f"/api/v1/{text}")
                for text in ("journal", "report", "status")
            ]
            command_line = Path(f"/proc/{tapeway.pid}/cmdline")
            places = {
                "admin": json.dumps(told).encode(),
                "command line": command_line.read_bytes() if command_line.exists() else b"",
            }
        places |= {
            str(path): path.read_bytes()
            for path in tmp_path.rglob("*")
            if path.is_file() and path.name != "proxy"
        }
        assert canary.sightings({"the password": password}, places) == []


async def test_a_wrong_password_is_an_error_that_does_not_show_it(tmp_path: Path) -> None:
    password = canary.canary()
    async with ForwardProxy(login=b"Basic another") as proxy:
        environ = {"HTTPS_PROXY": proxy.url_of("bob", quote(password, safe=""))}
        async with Tapeway(
            tmp_path, "--upstream", "https://api.example.com", environ=environ
        ) as tapeway:
            answer = await tapeway.ask("/v1/models")
            journal = await tapeway.admin("GET", "/api/v1/journal")

        assert answer.status == 502
        assert f"the proxy {proxy.url} (HTTPS_PROXY) does not accept" in answer.body.decode()
        places = {
            "answer": answer.body,
            "journal": json.dumps(journal).encode(),
            "log": tapeway.stderr.encode(),
        }
        assert canary.sightings({"the password": password}, places) == []
