"""What each client makes of a miss: one quick try, and the words that say what is missing."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import anthropic
import boto3  # type: ignore[import-untyped]
import httpx
import ollama
import openai
import pytest
from botocore.exceptions import ClientError
from google import genai
from google.genai import errors, types

from tests.clients.end_to_end.leaks import Leaks
from tests.clients.end_to_end.process import Tapeway

# google-genai subclasses aiohttp's session, which warns at the first asynchronous call.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession")

WORDS: Any = [{"role": "user", "content": "never recorded"}]


async def openai_chat(url: str, key: str) -> tuple[int, str]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key) as client:
        with pytest.raises(openai.APIStatusError) as caught:
            await client.chat.completions.create(model="m", messages=WORDS)
    return caught.value.status_code, str(caught.value)


async def openai_stream(url: str, key: str) -> tuple[int, str]:
    async with openai.AsyncOpenAI(base_url=f"{url}/openai/v1", api_key=key) as client:
        with pytest.raises(openai.APIStatusError) as caught:
            await client.chat.completions.create(model="m", messages=WORDS, stream=True)
    return caught.value.status_code, str(caught.value)


async def openai_responses(url: str, key: str) -> tuple[int, str]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key) as client:
        with pytest.raises(openai.APIStatusError) as caught:
            await client.responses.create(model="m", input="never recorded")
    assert str(caught.value.request_id) in caught.value.response.text
    return caught.value.status_code, str(caught.value)


async def anthropic_message(url: str, key: str) -> tuple[int, str]:
    async with anthropic.AsyncAnthropic(base_url=url, api_key=key) as client:
        with pytest.raises(anthropic.APIStatusError) as caught:
            await client.messages.create(model="m", max_tokens=9, messages=WORDS)
    return caught.value.status_code, str(caught.value)


async def gemini_generate(url: str, key: str) -> tuple[int, str]:
    options = types.HttpOptions(base_url=url)
    async with genai.Client(api_key=key, http_options=options).aio as client:
        with pytest.raises(errors.ClientError) as caught:
            await client.models.generate_content(model="m", contents="never recorded")
    return caught.value.code, str(caught.value)


async def ollama_chat(url: str, key: str) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {key}"}
    async with ollama.AsyncClient(host=url, headers=headers) as client:
        with pytest.raises(ollama.ResponseError) as caught:
            await client.chat(model="m", messages=WORDS)
    return caught.value.status_code, str(caught.value)


async def bedrock_converse(url: str, key: str) -> tuple[int, str]:
    client = boto3.client(
        "bedrock-runtime",
        region_name="us-east-1",
        endpoint_url=f"{url}/bedrock",
        aws_access_key_id="AKIDEXAMPLE",
        aws_secret_access_key=key,
    )
    words = [{"role": "user", "content": [{"text": "never recorded"}]}]
    with pytest.raises(ClientError) as caught:
        await asyncio.to_thread(client.converse, modelId="m", messages=words)
    return caught.value.response["ResponseMetadata"]["HTTPStatusCode"], str(caught.value)


async def plain_request(url: str, key: str) -> tuple[int, str]:
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {key}"}) as client:
        answer = await client.post(f"{url}/openai/v1/chat/completions", json={"messages": WORDS})
    with pytest.raises(httpx.HTTPStatusError, match="Replay miss: POST /v1/chat/completions"):
        answer.raise_for_status()
    return answer.status_code, answer.json()["message"]


CALLS: list[Callable[[str, str], Coroutine[None, None, tuple[int, str]]]] = [
    openai_chat,
    openai_stream,
    openai_responses,
    anthropic_message,
    gemini_generate,
    ollama_chat,
    bedrock_converse,
    plain_request,
]


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tapeway]:
    with Tapeway(tmp_path_factory.mktemp("misses"), "--mode", "replay") as replaying:
        yield replaying


@pytest.fixture
def key(proxy: Tapeway, leaks: Leaks) -> Iterator[str]:
    yield leaks.secret("the key")
    leaks.collect("replaying", proxy.let_out())


@pytest.mark.parametrize("call", CALLS)
def test_a_miss_is_tried_once_and_says_what_is_missing(
    proxy: Tapeway,
    key: str,
    call: Callable[[str, str], Coroutine[None, None, tuple[int, str]]],
) -> None:
    before = proxy.status()["counts"]["miss"]

    status, message = asyncio.run(call(proxy.proxy, key))

    assert status == 400
    assert "replay miss: POST /" in message
    # Some SDKs show the answer as Python writes a dict, whose quotes may be escaped.
    assert ": there is no cassette 'default'" in message.replace("\\'", "'")
    assert key not in message
    assert proxy.status()["counts"]["miss"] == before + 1
    assert proxy.status()["upstream_connections"] == 0
