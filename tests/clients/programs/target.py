"""Where a client is pointed and what it brings along."""

import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Target:
    """The root of a provider's paths, with the key and the cookie of this run alone."""

    url: str
    key: str = "sk-nobody"
    cookie: str = "nobody"

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc

    @property
    def path(self) -> str:
        """The prefix of the provider's paths."""
        return urlsplit(self.url).path

    @property
    def headers(self) -> dict[str, str]:
        return {"Cookie": f"session={self.cookie}"}


Run = Callable[[Target], Coroutine[None, None, list[object]]]
Step = Callable[[Any], Coroutine[None, None, list[object]]]


async def settle(value: Any) -> Any:
    """The value itself, awaited if it came from an asynchronous client."""
    return await value if inspect.isawaitable(value) else value


async def collect(stream: Any) -> list[Any]:
    """Everything the stream yields, from either kind of client."""
    stream = await settle(stream)
    if hasattr(stream, "__aiter__"):
        return [item async for item in stream]
    return list(stream)


async def finished(manager: Any, getter: str) -> Any:
    """What a streaming helper of either kind of client has put together at the end."""
    if hasattr(manager, "__aenter__"):
        async with manager as stream:
            return await getattr(stream, getter)()
    with manager as stream:
        return getattr(stream, getter)()


def dumped(*objects: Any) -> list[object]:
    """The clients' objects as plain values, to compare two runs with."""
    return [one.model_dump() for one in objects]
