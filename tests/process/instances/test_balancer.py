"""Two processes on one database behind a real nginx, set up as the documentation shows."""

import asyncio
import json
import os
import shutil
import socket
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.process.counting_upstream import Upstream
from tests.process.instances.shared_database import instances
from tests.process.serving import DEADLINE_S, Tapeway, address_of, request
from tests.stores.postgres_server import fresh
from tests.support.markdown import blocks
from tests.support.ports import free_ports
from tests.support.raw_client import Answer, RawClient
from tests.support.reuse import reuse_all

pytestmark = pytest.mark.slow

(CONFIG,) = [block.text for block in blocks("docs/scaling.md") if block.language == "nginx"]
DOCUMENTED = ("10.0.0.11:8080", "10.0.0.12:8080")

_AROUND = """
daemon off;
master_process off;
pid {folder}/pid;
error_log stderr warn;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{config}
}}
"""


@pytest.fixture
def nginx() -> str:
    """The program, which not every machine has."""
    program = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        pytest.skip("there is no nginx on this machine")
    return program


@asynccontextmanager
async def balanced(program: str, folder: Path, members: Sequence[Tapeway]) -> AsyncIterator[str]:
    """The address of nginx before these instances."""
    (port,) = free_ports(1)
    config = CONFIG.replace("listen 8080;", f"listen 127.0.0.1:{port};")
    for documented, member in zip(DOCUMENTED, members, strict=True):
        config = config.replace(documented, member.proxy.removeprefix("http://"))
    path = folder / "nginx.conf"
    path.write_text(_AROUND.format(folder=folder, config=config))
    process = await asyncio.create_subprocess_exec(
        *(program, "-p", str(folder), "-c", str(path)), stderr=asyncio.subprocess.PIPE
    )
    try:
        url = f"http://127.0.0.1:{port}"
        await _listens(url, process)
        yield url
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _listens(url: str, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            assert process.returncode is None, "nginx did not come up"
            with socket.socket() as probe:
                if probe.connect_ex(address_of(url)) == 0:
                    return
            await asyncio.sleep(0.02)


async def asked(url: str, *requests: bytes) -> list[Answer]:
    """The answers to requests at the same time, each on a connection of its own."""

    async def one(sent: bytes) -> Answer:
        async with asyncio.timeout(DEADLINE_S), RawClient(url) as client:
            await client.send(sent)
            return await client.answer()

    return await asyncio.gather(*[one(sent) for sent in requests])


async def counts(member: Tapeway) -> Counter[str]:
    return Counter((await member.status())["counts"])


async def test_each_request_is_recorded_once_and_replayed_by_either(
    tmp_path: Path, postgres_dsn: str, nginx: str
) -> None:
    reuse_all(tmp_path)
    config = ("--config", str(tmp_path / "tapeway.toml"))
    typed = ("Content-Type", "application/json")
    gets = [request(f"/x/{number}%2F//?q=a%20b&q=+") for number in range(30)]
    posts = [request("/y", json.dumps({"n": number}).encode(), typed) for number in range(30)]
    async with (
        fresh(postgres_dsn) as url,
        Upstream() as upstream,
        instances(tmp_path, url, "--upstream", upstream.url, *config, count=2) as members,
        balanced(nginx, tmp_path, members) as front,
    ):
        first = await asked(front, *[target for target in gets + posts for _ in range(2)])
        again = await asked(front, *gets, *posts)
        served = [await counts(member) for member in members]

    assert Counter(answer.outcome for answer in first) == {b"recorded": 60, b"replayed": 60}
    assert [answer.body for answer in first[::2]] == [answer.body for answer in first[1::2]]
    assert {answer.outcome for answer in again} == {b"replayed"}
    assert [answer.body for answer in again] == [answer.body for answer in first[::2]]
    assert set(upstream.asks) == {f"/x/{number}%2F//?q=a%20b&q=+" for number in range(30)} | {"/y"}
    assert upstream.asks.total() == 60
    # One after the other gets a request, so that either one serves what the other has recorded.
    assert [report["recorded"] + report["replayed"] for report in served] == [90, 90]
    assert sum(report["recorded"] for report in served) == 60


async def test_a_stream_passes_as_it_comes_and_an_update_is_not_noticed(
    tmp_path: Path, postgres_dsn: str, nginx: str
) -> None:
    reuse_all(tmp_path)
    options = ("--delivery", "stream", "--config", str(tmp_path / "tapeway.toml"))
    async with (
        fresh(postgres_dsn) as url,
        Upstream(chunked=True) as upstream,
        instances(tmp_path, url, "--upstream", upstream.url, *options, count=2) as members,
        balanced(nginx, tmp_path, members) as front,
    ):
        upstream.rest.clear()
        async with RawClient(front) as client, asyncio.timeout(DEADLINE_S):
            await client.send(request("/stream"))
            begun = await client.until(b"/stream ")
            upstream.rest.set()
            ended = await client.until(b"0\r\n\r\n")
        (replayed,) = await asked(front, request("/stream"))
        assert await members[0].stopped() == 0
        later = await asked(front, *[request(f"/later/{number}") for number in range(10)])

    assert b"Tapeway-Outcome: recorded" in begun
    assert ended
    assert (replayed.outcome, replayed.body) == (b"replayed", upstream.only_answer("/stream"))
    assert {answer.outcome for answer in later} == {b"recorded"}
