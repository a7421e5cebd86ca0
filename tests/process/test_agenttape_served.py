"""What AgentTape recorded, asked of the real process by the clients that it recorded."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from shutil import copyfile
from typing import Any

import httpx
import openai
import pytest
import requests
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam

from tests.formats.agenttape.cassettes import FOLDER
from tests.process.serving import Tapeway

CLI = Path(sys.executable).with_name("tapeway")

Serve = Callable[[], AbstractAsyncContextManager[openai.AsyncOpenAI]]


@pytest.fixture(params=["json", "yaml", "sqlite"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Serve:
    """A client of a process that replays `llm` of AgentTape 0.1.8 from one sort of store."""
    folder = tmp_path / "cassettes"
    folder.mkdir()
    file = FOLDER / ("0.1.8-json/llm.json" if request.param == "json" else "0.1.8/llm.yaml")
    copyfile(file, folder / file.name)

    @asynccontextmanager
    async def serving() -> AsyncIterator[openai.AsyncOpenAI]:
        store = str(folder)
        if request.param == "sqlite":
            store = f"sqlite:{tmp_path / 'calls.db'}"
            converting = await asyncio.create_subprocess_exec(
                *(CLI, "cassette", "convert", "llm", f"{store}#llm", "--store", folder),
                stderr=asyncio.subprocess.PIPE,
            )
            _, said = await converting.communicate()
            assert converting.returncode == 0, said
        options = ("--mode", "replay", "--cassette", "llm", "--store", store)
        async with (
            Tapeway(tmp_path, *options) as tapeway,
            # With the retries of a client as it is.
            openai.AsyncOpenAI(base_url=f"{tapeway.ready['proxy']}/v1", api_key="none") as client,
        ):
            yield client

    return serving


async def test_the_sdk_gets_and_raises_what_it_did_when_it_was_recorded(served: Serve) -> None:
    async with served() as client:

        async def chat(said: str, model: str = "m", **more: float) -> ChatCompletion:
            asked: list[ChatCompletionMessageParam] = [{"role": "user", "content": said}]
            return await client.chat.completions.create(
                model=model, messages=asked, temperature=more.get("temperature", openai.omit)
            )

        greeting = await chat("Hi", temperature=0.0)
        # Recorded twice, and told as a stream to who asks for one.
        said: list[ChatCompletionMessageParam] = [{"role": "user", "content": "again"}]
        async with client.chat.completions.stream(model="m", messages=said) as stream:
            streamed = await stream.get_final_completion()
        # The file says ***REDACTED*** for both addresses.
        mails = [await chat(f"mail to {name}@example.com") for name in ("b", "a")]
        response = await client.responses.create(model="m", input="2+2", instructions="short")
        # The SDK asks for base64 on its own account, and turns it into numbers again.
        packed = await client.embeddings.create(model="e", input=["one"])
        plain = await client.embeddings.create(model="e", input=["two"], encoding_format="float")
        with pytest.raises(openai.RateLimitError) as limited:
            await chat("x", "limited")
        with pytest.raises(openai.APIStatusError) as missed:
            await chat("mail to c@example.com")
        client.max_retries = 0
        with pytest.raises(openai.APIConnectionError):
            await chat("x", "cut")

    assert greeting.choices[0].message.content == "echo: Hi"
    assert streamed.choices[0].message.content == "echo: again"
    assert streamed.choices[0].finish_reason == "stop"
    assert greeting.usage is not None
    assert greeting.usage.total_tokens == 12
    assert [mail.choices[0].finish_reason for mail in mails] == ["stop", "stop"]
    assert response.output_text == "4"
    for found in (packed, plain):
        assert found.data[0].embedding == pytest.approx([0.5, 1e-07, -0.25])
    assert missed.value.status_code == 400
    assert limited.value.code == "rate_limit_exceeded"
    assert limited.value.request_id == "req_1"


@pytest.mark.parametrize("release", ["0.1.8", "0.1.5", "0.1.0"])
async def test_the_clients_that_recorded_get_every_recording_in_its_turn(
    tmp_path: Path, release: str
) -> None:
    options = ("--mode", "replay", "--cassette", "http", "--store", str(FOLDER / release))
    async with Tapeway(tmp_path, *options) as tapeway:
        found = await asyncio.to_thread(_asked_again, tapeway.ready["proxy"], release)

    failed = 11 if release == "0.1.0" else 12
    assert found == [number for number in range(failed + 4) if number != failed]


def _asked_again(base: str, release: str) -> list[int]:
    """What was asked when it was recorded, but for what nobody answered: who answers now."""
    # The first release took JSON for text, of which all counts.
    nonce = 3 if release == "0.1.0" else 9
    secret = {"token": "t-secret-1234567890", "text": "sk-canary-0123456789abcdef", "nonce": nonce}
    octets = {"content": b"\xff\xfe", "headers": {"content-type": "application/octet-stream"}}
    asked: list[Any] = [
        {"json": secret},
        {"json": {"note": "to a@example.com"}},
        {"data": {"a": ["1", "2"], "b": "x y"}},
        *([] if release == "0.1.0" else [{"files": {"file": ("a.txt", b"hello")}}]),
        octets,
    ]
    with httpx.Client() as client:
        answers: list[Any] = [client.get(f"{base}/json?b=1&timestamp=8&a=2%20x")]
        answers += [client.post(f"{base}/echo", **arguments) for arguments in asked]
        paths = ("/text", "/binary", "/big", "/missing", "/json", "/json")
        answers += [client.get(base + path) for path in paths]
    with requests.Session() as session:
        answers.append(session.get(f"{base}/json", params={"q": "1", "nonce": "3"}))
        answers.append(session.post(f"{base}/echo", json={"note": "to c@example.com"}))
        answers.append(session.post(f"{base}/echo", data={"a": ["1", "2"]}))
    return [int(answer.headers["tapeway-interaction"]) for answer in answers]
