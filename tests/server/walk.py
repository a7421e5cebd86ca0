"""Records which functions a replay and a recording run: `python -m tests.server.walk` writes `walks/`.

It is a process of its own, so that no cache is warm but by what it does itself.
"""

import asyncio
import json
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType

from aiohttp import web

import tapeway.core
from tapeway.engine import memory_cassettes
from tapeway.stores.file.store import FileStore
from tests.server.in_process_proxy import RunningProxy, running_proxy
from tests.support.fakes.broker import until
from tests.support.raw_client import RawClient

FOLDER = Path(__file__).parent / "walks"
SOURCES = str(Path(tapeway.core.__file__).parents[1]) + "/"

_LATER_TURNS = 10
"""Turns of the event loop in which whatever follows an answer is done."""

_ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
}


class Walk:
    """The functions of tapeway that are called while it is on, in all threads."""

    def __init__(self) -> None:
        self.on = False
        self.functions: set[tuple[str, str]] = set()

    def start(self) -> None:
        """Be told of every call in this thread and those to come."""
        threading.setprofile(self._called)
        sys.setprofile(self._called)

    def text(self) -> str:
        """Each file with its functions, and how many there are."""
        files = sorted({file for file, _ in self.functions})
        lines = [f"{len(self.functions)} functions in {len(files)} files"]
        for file in files:
            names = sorted(name for of, name in self.functions if of == file)
            lines += ["", file, *(f"    {name}" for name in names)]
        return "\n".join(lines) + "\n"

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        if not self.on or event != "call":
            return
        file, name = frame.f_code.co_filename, frame.f_code.co_qualname
        # Comprehensions and lambdas belong to the function around them, in newer versions also here.
        if file.startswith(SOURCES) and not frame.f_code.co_name.startswith("<"):
            self.functions.add((file.removeprefix(SOURCES), name))


async def main() -> dict[str, str]:
    """The three walks by name."""
    setattr(memory_cassettes, "EVERY_S", 3600.0)  # noqa: B010 - no look at files in mid-walk
    with tempfile.TemporaryDirectory() as folder:
        runner = web.ServerRunner(web.Server(_answer))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        upstream = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            store = FileStore(Path(folder))
            async with (
                running_proxy(upstream, mode="auto", store=store) as proxy,
                proxy.connect() as client,
            ):
                for number in range(3):
                    await _ask(proxy, client, number, "recorded")
                recording = await _walked(store, proxy, client, 3, "recorded")
            store = FileStore(Path(folder))
            async with (
                running_proxy(mode="replay", store=store) as proxy,
                proxy.connect() as client,
            ):
                await _ask(proxy, client, 0, "replayed")
                first_replay = await _walked(store, proxy, client, 3, "replayed")
                replay = await _walked(store, proxy, client, 3, "replayed")
        finally:
            await runner.cleanup()
    return {"recording": recording, "first_replay": first_replay, "replay": replay}


WALK = Walk()


async def _walked(
    store: FileStore, proxy: RunningProxy, client: RawClient, number: int, outcome: str
) -> str:
    await _at_rest(store)
    WALK.functions.clear()
    WALK.on = True
    await _ask(proxy, client, number, outcome)
    for _ in range(_LATER_TURNS):
        await asyncio.sleep(0)
    await _at_rest(store)
    WALK.on = False
    return WALK.text()


async def _at_rest(store: FileStore) -> None:
    # The thread that wrote a recording takes some steps after it has said so.
    await until(lambda: not any(each.executor._running for each in store._open.values()))


async def _ask(proxy: RunningProxy, client: RawClient, number: int, outcome: str) -> None:
    asked = {"model": "m", "messages": [{"role": "user", "content": f"Say hello {number}"}]}
    answer = await client.ask(
        proxy.request(
            b"POST /v1/chat/completions",
            b"Content-Type: application/json",
            b"Authorization: Bearer sk-abcdefghijklmnopqrstuvwx",
            body=json.dumps(asked).encode(),
        )
    )
    assert (b"Tapeway-Outcome", outcome.encode()) in answer.fields, answer.head


async def _answer(request: web.BaseRequest) -> web.StreamResponse:
    await request.read()
    return web.json_response(_ANSWER)


if __name__ == "__main__":
    WALK.start()
    found = asyncio.run(main())
    if sys.argv[1:] == ["--print"]:
        sys.stdout.write(json.dumps(found))
    else:
        FOLDER.mkdir(exist_ok=True)
        for name, text in found.items():
            (FOLDER / f"{name}.txt").write_text(text)
