"""A base URL with a missing or repeated version is corrected and logged once."""

import logging

import pytest

from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseHead
from tapeway.stores.memory import MemoryStore
from tests.server.http.test_targets import target_of
from tests.server.in_process_proxy import RunningProxy, running_proxy
from tests.support.socket_upstream import Peer


async def outcomes(proxy: RunningProxy, *targets: str) -> list[bytes | None]:
    return [(await proxy.ask(b"GET " + target.encode())).outcome for target in targets]


async def test_every_spelling_is_the_same_request_to_upstream_and_cassette() -> None:
    async with Peer() as peer, running_proxy(mode="auto", routes={"openai": peer.url}) as proxy:
        found = await outcomes(
            proxy,
            "/openai/v1/v1/responses?a=%2F",
            "/openai/responses?a=%2F",
            "/openai/v1/responses?a=%2F",
            "/v1/v1/responses?a=%2F",
            "/responses?a=%2F",
            "/@default/openai/responses?a=%2F",
        )

        assert found == [b"recorded"] + 5 * [b"replayed"]
        assert [target_of(request) for request in peer.requests] == ["/v1/responses?a=%2F"]
        assert {entry.path for entry in proxy.journal} == {"/v1/responses?a=%2F"}
        lacks, twice = "lacks its version", "has its version twice"
        assert [
            entry.message and entry.message.removeprefix("the client's base URL ")
            for entry in proxy.journal
        ] == [lacks, lacks, twice, None, lacks, twice]


@pytest.mark.parametrize(
    "target",
    [
        "//v1/x",
        "//v1/v1/models",
        "/v1//v1/models",
        "/%2Fv1/models",
        "/v1%2Fv1/models",
        "/v1/v1%2Fmodels",
        "/v1/v1beta",
        "/v1/v1beta/models",
        "/v1/v1",
        "/v1/v1/",
        "/v1/v1//models",
        "/v1/v1/v1/models",
        "/v2/v2/chat",
        "/./models",
        "/../models",
        "/mod%65ls",
        "/models%2F",
        "/unheard_of/models",
        "/v1/v1x?y=/v1/v1/models",
    ],
)
async def test_every_other_target_of_a_provider_arrives_as_it_was_written(target: str) -> None:
    async with Peer() as peer, running_proxy(routes={"openai": peer.url}) as proxy:
        await proxy.ask(b"GET /openai" + target.encode())

        assert target_of(peer.requests[0]) == target
        assert [entry.message for entry in proxy.journal] == [None]


@pytest.mark.parametrize("target", ["/v1/v1/models", "/messages", "/chat/completions"])
async def test_a_route_of_no_known_provider_gets_the_target_as_sent(target: str) -> None:
    async with Peer() as peer, running_proxy(peer.url, routes={"mine": peer.url}) as proxy:
        for prefix in ("", "/mine"):
            await proxy.ask(b"GET " + prefix.encode() + target.encode())

        assert [target_of(request) for request in peer.requests] == [target, target]


async def test_each_mistake_is_logged_once_per_route_with_the_right_base_url(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "tapeway.server.proxy")
    async with (
        Peer() as peer,
        running_proxy(routes={"anthropic": peer.url, "openai": peer.url}) as proxy,
    ):
        await outcomes(
            proxy,
            "/@suite/anthropic/messages?key=not-to-be-shown",
            "/anthropic/messages",
            "/messages",
            "/anthropic/v1/v1/messages",
            "/anthropic/v1/messages",
            "/chat/completions",
        )
        root = proxy.url

    assert [record.getMessage() for record in caplog.records] == [
        "anthropic: the client's base URL lacks its version, which is corrected: "
        f"set it to {root}/@suite/anthropic/v1, or to {root}/@suite/anthropic if the client adds the rest itself",
        "anthropic: the client's base URL has its version twice, which is corrected: "
        f"set it to {root}/anthropic/v1, or to {root}/anthropic if the client adds the rest itself",
        "openai: the client's base URL lacks its version, which is corrected: "
        f"set it to {root}/v1, or to {root} if the client adds the rest itself",
    ]


async def test_a_recording_of_no_known_provider_answers_for_its_own_path() -> None:
    store = MemoryStore()
    request = Request("default", "GET", "/messages", base="http://mine")
    response = Response(ResponseHead(200), b"mine")
    head = CassetteHead("2026-01-01T00:00:00+00:00", "run")
    await store.save("default", StoredCassette(head, (Interaction(0, request, response),)))
    routes = {"anthropic": "http://127.0.0.1:9"}
    async with running_proxy(mode="replay", store=store, routes=routes) as proxy:
        answer = await proxy.ask(b"GET /messages")

        assert (answer.outcome, answer.body) == (b"replayed", b"mine")
        assert await outcomes(proxy, "/anthropic/messages") == [b"miss"]


@pytest.mark.parametrize("prefix", ["", "/mine"])
async def test_an_upstream_s_url_that_repeats_the_client_s_version_is_corrected_and_named_once(
    caplog: pytest.LogCaptureFixture, prefix: str
) -> None:
    caplog.set_level(logging.WARNING, "tapeway.server.proxy")
    async with Peer() as peer:
        url = f"{peer.url}/llm/v1"
        async with running_proxy(url, mode="auto", routes={"mine": url}) as proxy:
            found = await outcomes(
                proxy,
                f"{prefix}/v1/responses?a=%2F",
                f"{prefix}/v1/responses?a=%2F",
                f"{prefix}/responses?a=%2F",
            )

        assert found == [b"recorded", b"replayed", b"recorded"]
        assert [target_of(each) for each in peer.requests] == ["/llm/v1/responses?a=%2F"] * 2
        said = "the upstream's URL ends in /v1, which the client adds too"
        assert [entry.message for entry in proxy.journal] == [None, said, said]

    name = prefix.strip("/") or "default"
    assert [record.getMessage() for record in caplog.records] == [
        f"{name}: {said}, which is corrected: give the upstream's URL without it"
    ]


@pytest.mark.parametrize("path", ["/v1", "", "/v1/v1"])
async def test_the_recording_is_the_same_once_the_upstream_s_url_is_right(path: str) -> None:
    store = MemoryStore()
    async with Peer() as peer, running_proxy(f"{peer.url}/v1", mode="auto", store=store) as proxy:
        assert await outcomes(proxy, "/v1/models") == [b"recorded"]
    async with running_proxy(f"http://127.0.0.1:9{path}", mode="replay", store=store) as proxy:
        assert await outcomes(proxy, "/v1/models") == [b"replayed"]
