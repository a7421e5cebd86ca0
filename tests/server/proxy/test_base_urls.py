"""A base URL with a version too many or too few is an error that names the right URL."""

import orjson
import pytest

from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.control import Mode
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseHead
from tapeway.stores.memory import MemoryStore
from tests.server.http.test_targets import target_of
from tests.server.in_process_proxy import running_proxy
from tests.support.raw_client import Answer
from tests.support.socket_upstream import Peer


def fault(answer: Answer) -> tuple[int, str, str]:
    """Status, code and message of an error."""
    error = orjson.loads(answer.body)["error"]
    return answer.status, error["code"], error["message"]


WRONG = {
    "/openai/v1/v1/responses?key=not-to-be-shown": "/openai/v1",
    "/openai/responses": "/openai/v1",
    "/@suite/anthropic/messages": "/@suite/anthropic/v1",
    "/anthropic/v1/v1/messages": "/anthropic/v1",
    "/chat/completions": "/v1",
    "/v1/v1/messages": "/v1",
}


@pytest.mark.parametrize("mode", ["record", "auto", "replay", "passthrough"])
async def test_the_error_names_the_right_url_and_nobody_is_asked(mode: Mode) -> None:
    async with Peer() as peer:
        routes = {"openai": peer.url, "anthropic": peer.url}
        async with running_proxy(mode=mode, routes=routes) as proxy:
            for target, right in WRONG.items():
                answer = await proxy.ask(b"POST " + target.encode(), body=b"{}")
                status, code, message = fault(answer)
                assert (status, code) == (404, "base_url"), target
                assert f"set it to {proxy.url}{right}, or to " in message
                assert "not-to-be-shown" not in message
            assert peer.connections == 0


@pytest.mark.parametrize("prefix", ["", "/mine"])
async def test_an_upstream_s_url_that_repeats_the_client_s_version_is_an_error(prefix: str) -> None:
    async with Peer() as peer:
        url = f"{peer.url}/llm/v1"
        async with running_proxy(url, routes={"mine": url}) as proxy:
            wrong = await proxy.ask(b"GET " + prefix.encode() + b"/v1/responses")
            right = await proxy.ask(b"GET " + prefix.encode() + b"/responses")

        status, code, message = fault(wrong)
        assert (status, code, right.status) == (404, "base_url", 200)
        assert f"set the client's base URL to {proxy.url}{prefix}" in message
        assert [target_of(request) for request in peer.requests] == ["/llm/v1/responses"]


RIGHT = (
    "//v1/x",
    "//v1/v1/models",
    "/v1//v1/models",
    "/%2Fv1/models",
    "/v1%2Fv1/models",
    "/v1/v1%2Fmodels",
    "/v2/v2/chat",
    "/./models",
    "/../models",
    "/mod%65ls",
    "/models%2F",
    "/unheard_of/models",
    "/v1/v1x?y=/v1/v1/models",
)


async def test_every_other_target_of_a_provider_arrives_as_it_was_written() -> None:
    async with Peer() as peer, running_proxy(routes={"openai": peer.url}) as proxy:
        for target in RIGHT:
            await proxy.ask(b"GET /openai" + target.encode())

        assert [target_of(request) for request in peer.requests] == [*RIGHT]
        assert {entry.message for entry in proxy.journal} == {None}


@pytest.mark.parametrize("target", ["/v1/v1/models", "/messages", "/chat/completions"])
async def test_a_route_of_no_known_provider_gets_the_target_as_sent(target: str) -> None:
    async with Peer() as peer, running_proxy(peer.url, routes={"mine": peer.url}) as proxy:
        for prefix in ("", "/mine"):
            await proxy.ask(b"GET " + prefix.encode() + target.encode())

        assert [target_of(request) for request in peer.requests] == [target, target]


async def test_a_path_of_no_known_api_at_the_root_reaches_nobody() -> None:
    async with Peer() as peer:
        async with running_proxy(routes={"anthropic": peer.url}) as proxy:
            answer = await proxy.ask(b"POST /messages/?session_id=abc", body=b"{}")

        assert fault(answer)[:2] == (404, "no_route")
        assert peer.connections == 0


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
