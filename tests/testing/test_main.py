import asyncio
import json
import signal
import sys
from typing import Any

import pytest

from tests.clients.programs.raw_socket import exchange


async def start(*options: str) -> tuple[asyncio.subprocess.Process, dict[str, Any]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tapeway.testing", *options, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    return process, json.loads(await process.stdout.readline())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_prints_its_address_and_stops_on_a_signal(number: signal.Signals) -> None:
    process, ready = await start("--port", "0", "--codings", "gzip")
    answer = await exchange(ready["url"], "GET", "/v1/models", (("Accept-Encoding", "gzip"),))
    process.send_signal(number)

    assert ready["event"] == "ready"
    assert ready["pid"] == process.pid
    assert answer.values("content-encoding") == ["gzip"]
    assert await process.wait() == 0
