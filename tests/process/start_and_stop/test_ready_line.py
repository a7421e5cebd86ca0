import contextlib
import os
import pty
import re
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.process.counting_upstream import Upstream
from tests.process.serving import COMMAND, Tapeway
from tests.support.thoroughness import combinations


async def test_the_ready_line_says_where_it_serves_and_nothing_follows_it(tmp_path: Path) -> None:
    options = ("--mode", "replay", "--cassette", "smoke/one")
    async with Tapeway(tmp_path, *options, command=COMMAND) as tapeway:
        assert list(tapeway.ready) == ["event", "proxy", "admin", "mode", "cassette", "pid"]
        assert tapeway.ready["event"] == "ready"
        assert tapeway.ready["mode"] == "replay"
        assert tapeway.ready["cassette"] == "smoke/one"
        assert tapeway.ready["pid"] == tapeway.child
        for url in (tapeway.ready["proxy"], tapeway.ready["admin"]):
            assert re.fullmatch(r"http://127\.0\.0\.1:[1-9]\d*", url)
        assert (await tapeway.ask("/v1/models")).status == 400
        assert (await tapeway.status())["mode"] == "replay"

    assert await tapeway.rest_of_stdout() == b""


async def test_without_an_admin_listener_its_place_is_null(tmp_path: Path) -> None:
    async with Tapeway(tmp_path, "--admin-listen", "off") as tapeway:
        assert tapeway.ready["admin"] is None


async def test_a_proxy_that_has_said_it_is_ready_answers_at_once(tmp_path: Path) -> None:
    async with Upstream() as upstream, Tapeway(tmp_path, "--upstream", upstream.url) as tapeway:
        answer = await tapeway.ask("/first")

    assert answer.body == upstream.only_answer("/first")


async def test_an_ipv6_listener_is_announced_as_a_url(tmp_path: Path) -> None:
    async with Tapeway(tmp_path, "--listen", "[::1]:0") as tapeway:
        assert urlsplit(tapeway.proxy).hostname == "::1"
        assert (await tapeway.ask("/nowhere")).status == 404


@pytest.mark.slow
async def test_a_parser_that_is_not_compiled_is_named(tmp_path: Path) -> None:
    async with Tapeway(tmp_path, environ={"AIOHTTP_NO_EXTENSIONS": "1"}) as tapeway:
        assert (await tapeway.ask("/nowhere")).status == 404
        assert "without its compiled parser (AIOHTTP_NO_EXTENSIONS" in tapeway.stderr
    async with Tapeway(tmp_path) as tapeway:
        assert "compiled parser" not in tapeway.stderr


async def test_the_log_is_json_lines_off_a_terminal(tmp_path: Path) -> None:
    async with Tapeway(tmp_path, environ={"TAPEWAY_LISTN": "x"}) as tapeway:
        pass

    assert all({"at", "level", "logger", "message"} <= set(line) for line in tapeway.log)
    assert "TAPEWAY_LISTN is ignored" in tapeway.log[0]["message"]


async def test_the_log_is_text_on_a_terminal_and_the_ready_line_stays_json(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    tapeway = Tapeway(tmp_path, before=lambda: os.dup2(theirs, 2))
    async with tapeway:
        os.close(theirs)
        shown = os.read(ours, 65536).decode()
        while "look at it at" not in shown:
            shown += os.read(ours, 65536).decode()
    os.close(ours)

    assert re.match(r"\d\d:\d\d:\d\d info +store: file:", shown)
    assert tapeway.ready["event"] == "ready"
    proxy, admin = tapeway.ready["proxy"], tapeway.ready["admin"]
    assert f"the proxy is at {proxy}, look at it at {admin}/" in shown


def _nobody_reads(fd: int) -> Callable[[], None]:
    def break_it() -> None:
        reading, writing = os.pipe()
        os.close(reading)
        os.dup2(writing, fd)

    return break_it


@pytest.mark.slow
@pytest.mark.parametrize(
    ("output", "how"), combinations([1, 2], [_nobody_reads, lambda fd: partial(os.close, fd)])
)
async def test_an_output_that_is_gone_stops_nothing(
    tmp_path: Path, output: int, how: Callable[[int], Callable[[], None]]
) -> None:
    async with Upstream() as upstream:
        options = ("--upstream", upstream.url, "--admin-listen", "off")
        tapeway = Tapeway(tmp_path, *options, before=how(output))
        await tapeway.launch()
        try:
            await tapeway.until(lambda: _listens_on(tapeway.child), "it listened")
            [port] = _listens_on(tapeway.child)
            tapeway.ready = {"proxy": f"http://127.0.0.1:{port}", "pid": tapeway.child}
            answer = await tapeway.ask("/asked")
            tapeway.signal(signal.SIGTERM)
            code = await tapeway.ended()
        finally:
            await tapeway.kill()

    assert answer.body == upstream.only_answer("/asked")
    assert code == 0
    assert "Traceback" not in tapeway.stderr


def _listens_on(pid: int) -> list[int]:
    """The ports of a process that cannot say them."""
    own = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        # One that was closed meanwhile is none.
        with contextlib.suppress(FileNotFoundError):
            own.add(str(path.readlink()))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = "0A"
    return [
        int(address.partition(":")[2], 16)
        for _, address, _, state, _, _, _, _, _, inode, *_ in rows
        if state == listening and f"socket:[{inode}]" in own
    ]
