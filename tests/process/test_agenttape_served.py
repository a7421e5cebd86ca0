"""What AgentTape recorded of OpenAI's SDK, asked by the real SDK of the real process, from any store."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from shutil import copyfile

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam

from tests.formats.agenttape import FOLDER
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
    assert greeting.usage is not None
    assert greeting.usage.total_tokens == 12
    assert [each.choices[0].finish_reason for each in mails] == ["stop", "stop"]
    assert response.output_text == "4"
    for found in (packed, plain):
        assert found.data[0].embedding == pytest.approx([0.5, 1e-07, -0.25])
    assert missed.value.status_code == 424
    assert limited.value.code == "rate_limit_exceeded"
    assert limited.value.request_id == "req_1"
