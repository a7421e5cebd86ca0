"""Real clients follow what services hand out, through the proxy, live and replayed."""

import io
from collections.abc import Callable
from pathlib import Path

import anthropic
import httpx
import pytest
import requests
from google import genai
from google.genai import types

from tests.clients.end_to_end.leaks import Leaks
from tests.clients.end_to_end.process import Tapeway
from tests.support.handing_out import service

pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession")


def upload(url: str, key: str) -> object:
    options = types.HttpOptions(base_url=f"{url}/gemini")
    client = genai.Client(api_key=key, http_options=options)
    return client.files.upload(file=io.BytesIO(b"hello"), config={"mime_type": "text/plain"}).name


def batch_results(url: str, key: str) -> object:
    with anthropic.Anthropic(base_url=f"{url}/anthropic", api_key=key, max_retries=0) as client:
        [result] = client.messages.batches.results("msgbatch_1")
        return result.custom_id


def pages(url: str, key: str) -> object:
    with requests.Session() as session:
        session.trust_env = False
        first = session.get(f"{url}/@pages/svc/items", headers={"Authorization": f"Bearer {key}"})
        second = session.get(first.links["next"]["url"])
    return first.json() + second.json()


def login(url: str, key: str) -> object:
    with httpx.Client(trust_env=False, headers={"Authorization": f"Bearer {key}"}) as client:
        client.post(f"{url}/@login/svc/app/login").raise_for_status()
        return client.get(f"{url}/@login/svc/app/me").raise_for_status().json()


def login_of_requests(url: str, key: str) -> object:
    with requests.Session() as session:
        session.trust_env = False
        session.post(f"{url}/svc/app/login", headers={"X-Api-Key": key}).raise_for_status()
        answer = session.get(f"{url}/svc/app/me")
    answer.raise_for_status()
    return answer.json()


CALLS: list[tuple[Callable[[str, str], object], object]] = [
    (upload, "files/abc"),
    (batch_results, "one"),
    (pages, [1, 2]),
    (login, "me"),
    (login_of_requests, "me"),
]


@pytest.mark.parametrize(("call", "expected"), CALLS)
def test_what_a_service_hands_out_is_followed_through_the_proxy(
    call: Callable[[str, str], object], expected: object, tmp_path: Path, leaks: Leaks
) -> None:
    key = leaks.secret("the key")
    with service() as (url, asked_for):
        routes = [f"--route={name}={url}" for name in ("gemini", "anthropic", "svc")]
        with Tapeway(tmp_path, "--mode", "record", *routes, name="recording") as proxy:
            live = call(proxy.proxy, key)
            recorded = proxy.status()["counts"]["recorded"]
        leaks.pages |= proxy.left_behind()
    asked = len(asked_for)
    with Tapeway(tmp_path, "--mode", "replay", *routes, name="replaying") as proxy:
        replayed = call(proxy.proxy, key)
        counts = proxy.status()["counts"]
        leaks.pages |= proxy.let_out()

    assert live == replayed == expected
    assert asked == recorded == counts["replayed"] >= 2
    assert counts["miss"] == 0
