"""A secret in every place: none of them is in any byte that the process produced."""

import asyncio
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.clients.end_to_end.echoing_upstream import Mirror
from tests.clients.end_to_end.leaks import Leaks
from tests.clients.end_to_end.process import Tapeway
from tests.clients.end_to_end.secret_places import PLACES
from tests.support.canary import sightings
from tests.support.raw_client import Answer, RawClient

REFUSED = {"userinfo"}
"""A target with a password in it is no target of this proxy's (RFC 9110 section 4.2.4)."""

GIVEN = {"set-cookie"}
"""Here the secret is the upstream's."""


def send(proxy: Tapeway, name: str, secret: str, prefix: str = "") -> Answer:
    async def exchange() -> Answer:
        async with RawClient(proxy.proxy) as client:
            return await client.ask(*PLACES[name].segments(f"{prefix}/{name}", secret))

    return asyncio.run(exchange())


def seen(when: str, answer: Answer) -> dict[str, bytes]:
    return {f"{when}, head": answer.head, f"{when}, body": answer.body}


def replay_and_miss(proxy: Tapeway, leaks: Leaks) -> None:
    for name in PLACES:
        secret = leaks.canaries[name]
        replayed, missed = send(proxy, name, secret), send(proxy, name, secret, "/missed")
        leaks.pages |= seen(f"replay of {name}", replayed) | seen(f"miss of {name}", missed)
        if name not in REFUSED:
            assert (name, replayed.outcome) == (name, b"replayed")
            assert (name, missed.status) == (name, 400)


@pytest.mark.parametrize("delivery", ["buffer", "stream"])
def test_no_place_and_no_way_back_lets_a_secret_out(
    tmp_path: Path, leaks: Leaks, delivery: str
) -> None:
    secrets = {name: leaks.secret(name) for name in PLACES}
    environment = {
        "OPENAI_API_KEY": leaks.secret("the environment's key"),
        "TAPEWAY_ADMIN_TOKEN": quote(leaks.secret("the admin token"), safe=""),
    }
    password = quote(leaks.secret("the upstream's password"), safe="")
    options = ("--mode", "record", "--delivery", delivery)
    with Mirror({name: (place.way, secrets[name]) for name, place in PLACES.items()}) as upstream:
        environment["TAPEWAY_UPSTREAM"] = f"http://me:{password}@127.0.0.1:{upstream.port}"
        with Tapeway(tmp_path, *options, **environment) as proxy, proxy.followed():
            live = {name: send(proxy, name, secrets[name]) for name in PLACES}
            leaks.collect("recording", proxy.everything())
            proxy.admin("PUT", "/api/v1/mode", {"mode": "replay"})
            replay_and_miss(proxy, leaks)
            leaks.collect("replaying", proxy.everything())
            leaks.pages["report"] = proxy.admin("POST", "/api/v1/eject", {})
            leaks.collect("ejected", proxy.everything())
        leaks.collect("stopped", proxy.left_behind())

    for name in PLACES.keys() - REFUSED:
        # The upstream and the client do get the secret: the search could have found it.
        if name not in GIVEN:
            assert sightings({name: secrets[name]}, {"upstream": upstream.received[name]}), name
        if PLACES[name].way not in ("nothing", "trailer"):
            assert sightings({name: secrets[name]}, seen("live", live[name])), name
    assert proxy.left_behind()["events"].count(b"event: request") > 2 * len(PLACES)
