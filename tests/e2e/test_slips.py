"""A base URL that suits one client of a provider serves its other clients too."""

import json
from pathlib import Path

import anthropic
import openai

from tapeway.testing import ThreadedStandIn
from tests.e2e.leaks import Leaks
from tests.e2e.process import Tapeway

HELLO = {"role": "user", "content": "hello"}


def ask_openai(base_url: str, key: str) -> str:
    with openai.OpenAI(base_url=base_url, api_key=key, max_retries=0) as client:
        return client.chat.completions.create(model="gpt-4o", messages=[HELLO]).id  # type: ignore[list-item]


def ask_anthropic(base_url: str, key: str) -> str:
    with anthropic.Anthropic(base_url=base_url, api_key=key, max_retries=0) as client:
        return client.messages.create(model="claude", max_tokens=9, messages=[HELLO]).id  # type: ignore[list-item]


def test_a_client_that_adds_the_version_and_one_that_does_not_get_one_recording(
    tmp_path: Path, leaks: Leaks
) -> None:
    key = leaks.secret("the key")
    with ThreadedStandIn() as upstream:
        routes = (f"--route=openai={upstream.url}", f"--route=anthropic={upstream.url}")
        with Tapeway(tmp_path, *routes) as proxy:
            chats = {
                ask_openai(proxy.proxy + base, key)
                for base in ("/openai", "/openai/v1", "/openai/v1/v1", "/v1/v1", "")
            }
            messages = {
                ask_anthropic(proxy.proxy + base, key)
                for base in ("/anthropic/v1", "/anthropic", "/v1")
            }
            leaks.pages |= proxy.let_out()
        asked = [request.target for request in upstream.requests]
    warnings = [
        entry["message"]
        for entry in map(json.loads, proxy.left_behind()["stderr"].splitlines())
        if entry["logger"] == "tapeway.server.proxy"
    ]

    assert (len(chats), len(messages)) == (1, 1)
    assert asked == ["/v1/chat/completions", "/v1/messages"]
    assert [warning.partition(",")[0] for warning in warnings] == [
        "openai: the client's base URL lacks its version",
        "openai: the client's base URL has its version twice",
        "anthropic: the client's base URL has its version twice",
    ]
