"""Calls through DSPy with ReplayCache, as a program: it needs an older openai than the other tests.

The argument is a JSON object: `url` of the service, `key`, `place` and perhaps `cassette` for
ReplayCache, and the `steps` to take. Prints what each returned, or the error, as one line of JSON.
The mode comes from CACHE_MODE.
"""

import asyncio
import gc
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dspy  # type: ignore[import-not-found, unused-ignore]  # not in the tests' environment

from tapeway.integrations.dspy.replay_cache import CacheMissError, ReplayCache

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]


@dataclass
class Setting:
    """Where the calls go."""

    url: str
    key: str

    def lm(self, **more: Any) -> Any:
        given = {"api_base": self.url + "/v1", "api_key": self.key, "num_retries": 0, **more}
        if dspy.__version__ < "3.4":
            given.pop("engine", None)
        return dspy.LM(given.pop("model", "openai/gpt-4o"), **given)


def raw(at: Setting) -> Any:
    """The same question twice, another one, and with tools."""
    lm = at.lm()
    said = [lm("Grüß dich"), lm("Grüß dich"), lm("And now?")]
    return [*said, plain(lm("What is the weather in Oslo?", tools=TOOLS))]


def through_litellm(at: Setting) -> Any:
    """The other engine: its answers are models of pydantic."""
    return [at.lm(engine="litellm")("Through litellm", n=2)]


def predicted(at: Setting) -> Any:
    with dspy.context(lm=at.lm(), adapter=dspy.JSONAdapter()):
        return dspy.Predict("question -> answer")(question="What is 2+2?").answer


def awaited(at: Setting) -> Any:
    async def ask() -> Any:
        with dspy.context(lm=at.lm(), adapter=dspy.JSONAdapter()):
            answers = [
                dspy.Predict("question -> answer").acall(question=f"Number {n}?") for n in range(3)
            ]
            return [outcome.answer for outcome in await asyncio.gather(*answers)]

    return asyncio.run(ask())


def parallel(at: Setting) -> Any:
    program = dspy.Predict("question -> answer")
    with dspy.context(lm=at.lm(), adapter=dspy.JSONAdapter()):
        pairs = [
            (program, dspy.Example(question=f"Thread {n}?").with_inputs("question"))
            for n in range(8)
        ]
        found = dspy.Parallel(num_threads=4, disable_progress_bar=True)(pairs)
    return [prediction.answer for prediction in found]


def embedded(at: Setting) -> Any:
    embed = dspy.Embedder("openai/text-embedding-3-small", api_base=at.url + "/v1", api_key=at.key)
    return [[round(float(x), 6) for x in row] for row in embed(["one", "two"])]


def home_made(at: Setting) -> Any:
    import numpy  # type: ignore[import-not-found, unused-ignore]

    rows = dspy.Embedder(lambda texts: numpy.array([[len(text), 0.5] for text in texts]))
    return rows(["one", "three"]).tolist()


def uncached(at: Setting) -> Any:
    return at.lm(cache=False)("Not cached")


def own_class(at: Setting) -> Any:
    class Own(dspy.BaseLM):  # type: ignore[misc, unused-ignore]
        def forward(self, prompt: Any = None, messages: Any = None, **more: Any) -> Any:
            return at.lm(cache=False).forward(prompt, messages, **more)

    return Own("own")("Of my own")


def uncached_embedding(at: Setting) -> Any:
    embed = dspy.Embedder("openai/e", caching=False, api_base=at.url + "/v1", api_key=at.key)
    return embed(["one"]).tolist()


def unhashable(at: Setting) -> Any:
    return dspy.cache.get({"model": "m", "seed": 2**70})


def never_asked(at: Setting) -> Any:
    return at.lm()("And now!")


def usage(at: Setting) -> Any:
    """What a hit says it cost, and that nobody's copy is another's."""
    lm = at.lm(engine="litellm")
    lm("Grüß dich, litellm")
    seen = lm.history[-1]
    first = bool(seen["usage"]), seen["cost"] is not None
    lm("Grüß dich, litellm")
    return [*first, dict(lm.history[-1]["usage"] or {})]


def bad_mode(at: Setting) -> Any:
    """What catches an error in the mode, given or in the variable."""
    caught = []
    for given, variable in (("rewind", "replay"), (None, "rewind")):
        os.environ["CACHE_MODE"] = variable
        try:
            ReplayCache("nowhere.json", given)  # type: ignore[arg-type]  # what no checker saw
        except ValueError as exc:
            caught.append(str(exc))
    return caught


def a_miss(at: Setting) -> Any:
    """What a miss tells a program; half a surrogate pair cannot even be shown."""
    seen = []
    for prompt in ("Never asked", "\ud800"):
        request = {"model": "m", "prompt": prompt, "api_key": at.key, "_fn_identifier": "f"}
        try:
            dspy.cache.get(request)
        except CacheMissError as exc:
            seen.append([str(exc), exc.request, exc.cache_key, exc.cache_file])
    return seen


def plain(found: Any) -> Any:
    return json.loads(json.dumps(found, default=lambda value: value.model_dump()))


STEPS: dict[str, Callable[[Setting], Any]] = {
    step.__name__: step
    for step in (
        *(raw, through_litellm, predicted, awaited, parallel, embedded, home_made),
        *(uncached, own_class, uncached_embedding, unhashable, never_asked, usage),
        *(bad_mode, a_miss),
    )
}


def main() -> None:
    given = json.loads(sys.argv[1])
    at = Setting(given["url"], given["key"])
    done: dict[str, Any] = {"lazy": "cache" not in vars(dspy)}
    where = {"cassette": given["cassette"]} if "cassette" in given else {}
    with ReplayCache(given["place"], **where) as cache:
        for name in given["steps"]:
            try:
                done[name] = STEPS[name](at)
            except Exception as exc:
                done[name] = f"{type(exc).__name__}: {exc}"
        done["first_miss"] = cache.first_miss and str(cache.first_miss)
        done["in force"] = dspy.cache is cache
    done["put back"] = vars(dspy).get("cache") is not cache
    print(json.dumps(done))  # noqa: T201


if __name__ == "__main__":
    # As in litellm_calls.py: DSPy asks through LiteLLM.
    gc.disable()
    main()
