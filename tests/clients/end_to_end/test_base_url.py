"""A base URL is all that an app changes, and one that suits one client serves a provider's others too."""

from collections.abc import Iterator
from pathlib import Path

import anthropic
import openai
import pytest

from tapeway.testing import StandIn, ThreadedStandIn
from tests.clients.end_to_end.leaks import Leaks
from tests.clients.end_to_end.process import Tapeway

ASK = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hello"}]}
HELLO = {"role": "user", "content": "hello"}


def ask(base_url: str | None, key: str) -> str:
    with openai.OpenAI(base_url=base_url, api_key=key, max_retries=0) as client:
        return client.chat.completions.create(**ASK).id  # type: ignore[call-overload, no-any-return]


def test_the_variable_of_the_client_is_enough(
    tmp_path: Path, leaks: Leaks, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = leaks.secret("the key")
    with (
        ThreadedStandIn(StandIn(require_credential=True)) as upstream,
        Tapeway(tmp_path, "--route", f"openai={upstream.url}") as proxy,
    ):
        monkeypatch.setenv("OPENAI_BASE_URL", f"{proxy.proxy}/v1")
        first, second = ask(None, key), ask(None, key)
        leaks.pages |= proxy.let_out()

        assert first == second
        assert [request.header("authorization") for request in upstream.requests] == [
            f"Bearer {key}"
        ]


def test_every_address_of_a_route_replays_the_same_recording(tmp_path: Path, leaks: Leaks) -> None:
    key = leaks.secret("the key")
    with ThreadedStandIn() as upstream:
        with Tapeway(tmp_path, "--route", f"openai={upstream.url}", name="recording") as proxy:
            recorded = ask(f"{proxy.proxy}/v1", key)
        leaks.pages |= proxy.left_behind()
    with Tapeway(tmp_path, "--mode", "replay", name="replaying") as proxy:
        bases = ("/v1", "/openai/v1", "/@default/v1", "/@default/openai/v1")
        replayed = {ask(proxy.proxy + base, key) for base in bases}
        opened = proxy.status()["upstream_connections"]
        leaks.pages |= proxy.let_out()

    assert replayed == {recorded}
    assert opened == 0


def test_a_client_that_leaves_at_done_leaves_a_whole_recording(
    tmp_path: Path, leaks: Leaks
) -> None:
    key = leaks.secret("the key")

    def stream(base_url: str) -> list[object]:
        with openai.OpenAI(base_url=base_url, api_key=key, max_retries=0) as client:
            chunks = client.chat.completions.create(**ASK, stream=True)  # type: ignore[call-overload]
            return [chunk.model_dump() for chunk in chunks]

    with (
        ThreadedStandIn() as upstream,
        Tapeway(tmp_path, "--route", f"openai={upstream.url}") as proxy,
    ):
        live = stream(f"{proxy.proxy}/v1")
        replayed = stream(f"{proxy.proxy}/v1")
        leaks.pages |= proxy.let_out()

        assert replayed == live
        assert len(upstream.requests) == 1


def test_an_answer_that_broke_off_is_neither_passed_as_whole_nor_recorded(
    tmp_path: Path, leaks: Leaks
) -> None:
    key = leaks.secret("the key")
    cut = ASK | {"model": "cut"}
    with (
        ThreadedStandIn() as upstream,
        Tapeway(tmp_path, "--route", f"openai={upstream.url}") as proxy,
        openai.OpenAI(base_url=f"{proxy.proxy}/v1", api_key=key, max_retries=0) as client,
    ):
        for stream in (False, True):
            with pytest.raises(openai.APIError):
                list(client.chat.completions.create(**cut, stream=stream))  # type: ignore[call-overload]
        leaks.pages |= proxy.let_out()

        assert len(upstream.requests) == 2
        assert proxy.status()["counts"]["recorded"] == 0


@pytest.mark.parametrize("base", ["/openai", "/openai/v1/v1", "/v1/v1", ""])
def test_a_client_with_a_wrong_base_url_is_told_the_right_one(
    proxy_of_openai: tuple[Tapeway, ThreadedStandIn], base: str, leaks: Leaks
) -> None:
    proxy, upstream = proxy_of_openai
    before = len(upstream.requests)

    with pytest.raises(openai.NotFoundError) as caught:
        ask(proxy.proxy + base, leaks.secret("the key"))
    assert caught.value.code == "base_url"

    right = "/openai/v1" if base.startswith("/openai") else "/v1"
    assert f"set it to {proxy.proxy}{right}" in str(caught.value)
    assert len(upstream.requests) == before
    leaks.pages |= proxy.let_out()


def test_a_client_that_doubles_its_version_is_told_the_right_url(
    proxy_of_openai: tuple[Tapeway, ThreadedStandIn], leaks: Leaks
) -> None:
    proxy, _ = proxy_of_openai
    with (
        anthropic.Anthropic(
            base_url=f"{proxy.proxy}/anthropic/v1", api_key=leaks.secret("the key"), max_retries=0
        ) as client,
        pytest.raises(anthropic.NotFoundError, match=f"or to {proxy.proxy}/anthropic if"),
    ):
        client.messages.create(model="claude", max_tokens=9, messages=[HELLO])  # type: ignore[list-item]
    leaks.pages |= proxy.let_out()


@pytest.fixture(scope="module")
def proxy_of_openai(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Tapeway, ThreadedStandIn]]:
    folder = tmp_path_factory.mktemp("base-url")
    with ThreadedStandIn() as upstream:
        routes = (f"--route=openai={upstream.url}", f"--route=anthropic={upstream.url}")
        with Tapeway(folder, *routes) as proxy:
            yield proxy, upstream
