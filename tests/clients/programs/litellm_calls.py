"""Calls through litellm, as a program: it needs an older openai, so it runs in its own environment.

Each line of its input is a JSON object: the root URL of each provider, `key` and `cookie`. For each
it prints what the calls returned as one line of JSON.
"""

import asyncio
import gc
import json
import sys
from typing import Any

import litellm  # type: ignore[import-not-found, unused-ignore]  # not in the tests' environment

# litellm makes these up itself, anew for each answer.
OWN = {"id", "created"}
WORDS = [{"role": "user", "content": "Grüß dich"}]


def bases(target: dict[str, str]) -> dict[str, str]:
    """The models asked, and what litellm needs to reach each one's route."""
    return {
        "openai/gpt-4o": target["openai"] + "/v1",
        "anthropic/claude-sonnet-5": target["anthropic"],
        "gemini/gemini-2.5-flash": target["gemini"] + "/v1beta",
        "ollama_chat/llama3.2": target["ollama"],
    }


def plain(answer: Any) -> dict[str, object]:
    return {name: value for name, value in answer.model_dump().items() if name not in OWN}


async def calls(target: dict[str, str]) -> list[object]:
    """Each model whole and streamed, blocking and not."""
    out: list[object] = []
    for model, base in bases(target).items():
        given: dict[str, Any] = {
            "model": model,
            "messages": WORDS,
            "api_base": base,
            "api_key": target["key"],
            "extra_headers": {"Cookie": f"session={target['cookie']}"},
            "num_retries": 0,
        }
        out.append(plain(litellm.completion(**given)))
        out.append(plain(await litellm.acompletion(**given)))
        out += [plain(chunk) for chunk in litellm.completion(stream=True, **given)]
        out += [plain(chunk) async for chunk in await litellm.acompletion(stream=True, **given)]
    return out


if __name__ == "__main__":
    # LiteLLM leaves streams behind. A collection that closes one while httpcore holds the lock of
    # its pool waits for that lock for ever (encode/httpcore#990).
    gc.disable()
    for line in sys.stdin:
        print(json.dumps(asyncio.run(calls(json.loads(line)))), flush=True)  # noqa: T201
