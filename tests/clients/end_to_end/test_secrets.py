"""Secrets where nobody expects them: in answers, in the environment, in paths."""

import asyncio
from pathlib import Path

import orjson
import pytest

from tapeway.testing import ThreadedStandIn
from tests.clients.end_to_end.leaks import Leaks
from tests.clients.end_to_end.process import Tapeway
from tests.clients.programs.raw_socket import Wire, exchange
from tests.core.redaction.key_kinds import KEYS
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
        assert {request.target for request in upstream.requests} == {path}
    with Tapeway(tmp_path, "--mode", "replay", name="unrouted") as proxy:
        unrouted = leaks.page("no route", post(proxy.proxy, path, HELLO))
        leaks.pages |= proxy.let_out()

    assert (replayed.status, missed.status, unrouted.status) == (recorded.status, 400, 404)
