"""Secrets where nobody expects them: in answers, on error pages, in requests that are no HTTP."""

import asyncio
from pathlib import Path
from urllib.parse import quote

import orjson
import pytest

from tapeway.testing import StandIn, ThreadedStandIn
from tests.clients.raw_socket import Wire, exchange, send_bytes
from tests.core.redaction.key_kinds import KEYS
from tests.e2e.leaks import Leaks
from tests.e2e.process import Tapeway
from tests.support.canary import sightings

HELLO = {"messages": [{"role": "user", "content": "hello"}]}
REFLECT = HELLO | {"model": "reflect"}


def post(base: str, target: str, body: object, **fields: str) -> Wire:
    named = tuple((name.replace("_", "-"), value) for name, value in fields.items())
    sent = (("Content-Type", "application/json"), *named)
    return asyncio.run(exchange(base, "POST", target, sent, orjson.dumps(body)))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("target", ["/v1/chat/completions", "/v1/messages"])
def test_a_key_that_the_answer_repeats_reaches_the_client_but_no_recording(
    tmp_path: Path, leaks: Leaks, target: str, stream: bool
) -> None:
    key = leaks.secret("the reflected key")
    body = REFLECT | {"stream": stream}
    with ThreadedStandIn() as upstream:
        with Tapeway(tmp_path, "--mode", "record", "--upstream", upstream.url) as proxy:
            live = post(proxy.proxy, target, body, Authorization=f"Bearer {key}")
            leaks.pages |= proxy.let_out()
        leaks.pages |= proxy.left_behind()
    with Tapeway(tmp_path, "--mode", "replay", "--upstream", upstream.url) as proxy:
        replayed = post(proxy.proxy, target, body, Authorization=f"Bearer {key}")
        leaks.page("the replayed answer", replayed)
        leaks.pages |= proxy.let_out()

    assert sightings({"key": key}, {"live": live.body})
    assert replayed.status == 200
    assert replayed.body.startswith(live.body[:40])


def test_a_reflected_key_in_a_compressed_answer_is_no_exception(
    tmp_path: Path, leaks: Leaks
) -> None:
    key = leaks.secret("the reflected key")
    with ThreadedStandIn(StandIn(codings=("gzip",))) as upstream:
        with Tapeway(tmp_path, "--mode", "record", "--upstream", upstream.url) as proxy:
            fields = {"Authorization": f"Bearer {key}", "Accept_Encoding": "gzip"}
            live = post(proxy.proxy, "/v1/chat/completions", REFLECT, **fields)
            leaks.pages |= proxy.let_out()
        leaks.pages |= proxy.left_behind()

    assert sightings({"key": key}, {"live": live.body})


def test_a_key_of_the_environment_is_cut_out_of_what_people_write(
    tmp_path: Path, leaks: Leaks
) -> None:
    key = leaks.secret("the environment's key")
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": f"Is {key} mine?"}]}
    with ThreadedStandIn() as upstream:
        options = ("--mode", "record", "--upstream", upstream.url)
        with Tapeway(tmp_path, *options, OPENAI_API_KEY=key) as proxy:
            live = post(proxy.proxy, "/v1/chat/completions", body)
            leaks.pages |= proxy.let_out()
        leaks.pages |= proxy.left_behind()

        assert key.encode() in upstream.requests[0].body
    assert key.encode() in live.body


def test_the_journal_as_it_grows_names_no_secret(tmp_path: Path, leaks: Leaks) -> None:
    key, query = leaks.secret("the key"), quote(leaks.secret("the query's key"), safe="")

    async def follow(admin: str, proxy: str) -> bytes:
        reader, writer = await asyncio.open_connection(*admin.split("//")[1].split(":"))
        writer.write(
            f"GET /api/v1/events HTTP/1.1\r\nHost: {admin.split('//')[1]}\r\n\r\n".encode()
        )
        seen = await reader.readuntil(b": new journal entries follow\n\n")
        for path in ("/v1/models", "/nowhere"):
            fields = (("x-api-key", key),)
            await exchange(proxy, "GET", f"{path}?key={query}", fields)
            seen += await reader.readuntil(b"event: request\n")
            seen += await reader.readuntil(b"\n\n")
        writer.close()
        await writer.wait_closed()
        return seen

    with (
        ThreadedStandIn() as upstream,
        Tapeway(tmp_path, "--route", f"openai={upstream.url}") as proxy,
    ):
        seen = asyncio.run(follow(proxy.ready["admin"], proxy.proxy))
        leaks.pages["events"] = seen

        assert [request.target for request in upstream.requests] == [f"/v1/models?key={query}"]
    assert b"recorded" in seen
    assert b"/nowhere" in seen


def test_error_pages_repeat_no_secret(tmp_path: Path, leaks: Leaks) -> None:
    key, query = leaks.secret("the key"), quote(leaks.secret("the query's key"), safe="")
    cookie = leaks.secret("the cookie")
    fields = {"Authorization": f"Bearer {key}", "Cookie": f"session={cookie}"}
    with Tapeway(tmp_path, "--mode", "replay", "--route", "openai=http://127.0.0.1:9") as proxy:
        targets = {
            f"/openai/v1/chat/completions?key={query}": 400,
            f"/nowhere?key={query}": 404,
            f"/@no%20name/openai/v1/models?key={query}": 400,
        }
        for target, status in targets.items():
            wire = leaks.page(target.partition("?")[0], post(proxy.proxy, target, HELLO, **fields))
            assert wire.status == status
        leaks.pages |= proxy.let_out()
    leaks.pages |= proxy.left_behind()


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("/bot{}/sendMessage", "Telegram"),
        ("/services/T01234567/B01234567/{}", "Slack webhook"),
        ("/api/webhooks/123456789012345678/{}", "Discord webhook"),
    ],
)
def test_a_key_in_a_path_is_shown_nowhere(
    tmp_path: Path, leaks: Leaks, target: str, kind: str
) -> None:
    key = KEYS[kind].rpartition("/")[2]
    leaks.canaries["the key in the path"] = key
    path = target.format(key)
    with ThreadedStandIn() as upstream:
        options = ("--mode", "record", "--upstream", upstream.url)
        with Tapeway(tmp_path, *options) as proxy, proxy.followed():
            recorded = post(proxy.proxy, path, HELLO)
            proxy.admin("PUT", "/api/v1/mode", {"mode": "replay"})
            replayed = post(proxy.proxy, path, HELLO)
            missed = leaks.page("the miss", post(proxy.proxy, path, REFLECT))
            proxy.admin("PUT", "/api/v1/mode", {"mode": "passthrough"})
            post(proxy.proxy, path, HELLO)
            leaks.collect("serving", proxy.everything())
            leaks.pages["report"] = proxy.admin("POST", "/api/v1/eject", {})
        leaks.pages |= proxy.left_behind()
        assert {each.target for each in upstream.requests} == {path}
    with Tapeway(tmp_path, "--mode", "replay", name="unrouted") as proxy:
        unrouted = leaks.page("no route", post(proxy.proxy, path, HELLO))
        leaks.pages |= proxy.let_out()

    assert (replayed.status, missed.status, unrouted.status) == (recorded.status, 400, 404)


def test_an_upstream_out_of_reach_costs_no_secret(tmp_path: Path, leaks: Leaks) -> None:
    key, query = leaks.secret("the key"), quote(leaks.secret("the query's key"), safe="")
    with ThreadedStandIn() as upstream:
        gone = upstream.url
    with Tapeway(tmp_path, "--mode", "auto", "--upstream", gone) as proxy:
        wire = post(proxy.proxy, f"/v1/models?key={query}", HELLO, x_api_key=key)
        leaks.page("the answer", wire)
        leaks.pages |= proxy.let_out()
    leaks.pages |= proxy.left_behind()

    assert wire.status == 502


@pytest.mark.parametrize(
    "request_head",
    [
        "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer KEY\x01\r\n\r\n",
        "GET /?key=QUERY HTTP/9.9\r\nHost: a\r\nx-api-key: KEY\r\n\r\n",
        "GET /?key=QUERY HTTP/1.1\r\nHost: a\r\nHost: b\r\nx-api-key: KEY\r\n\r\n",
        "GET /?key=QUERY HTTP/1.1\r\nx-api-key KEY\r\n\r\n",
        "CONNECT /?key=QUERY HTTP/1.1\r\nHost: a\r\nx-api-key: KEY\r\n\r\n",
    ],
)
def test_a_request_that_is_no_http_is_refused_without_a_word_of_it(
    tmp_path: Path, leaks: Leaks, request_head: str
) -> None:
    key, query = leaks.secret("the key"), leaks.secret("the query's key")
    sent = request_head.replace("KEY", key).replace("QUERY", quote(query, safe=""))
    with Tapeway(tmp_path, "--mode", "auto", "--upstream", "http://127.0.0.1:9") as proxy:
        wire = leaks.page("the answer", asyncio.run(send_bytes(proxy.proxy, sent.encode())))
        leaks.pages |= proxy.let_out()
    leaks.pages |= proxy.left_behind()

    assert 400 <= wire.status < 600
