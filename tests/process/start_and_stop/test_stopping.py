"""Signals, and what becomes of the calls in flight."""

import asyncio
import json
import signal
import socket
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.process.counting_upstream import Upstream
from tests.process.serving import FAILURE, Tapeway, address_of, request
from tests.process.strace import Trace
from tests.support.ports import free_ports
from tests.support.raw_client import Answer, RawClient
from tests.support.reuse import reuse_all

DOCKER_S = 10
"""What docker gives a container to stop before it kills it."""

STOPPING = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]


def code_of(answer: Answer) -> str:
    return str(json.loads(answer.body)["error"]["code"])


@pytest.mark.parametrize("number", STOPPING, ids=lambda number: number.name)
async def test_with_nothing_in_flight_it_folds_its_files_and_ends(
    tmp_path: Path, number: signal.Signals
) -> None:
    async with Upstream() as upstream, Tapeway(tmp_path, "--upstream", upstream.url) as tapeway:
        await tapeway.ask("/one")
        assert (tapeway.store / "default.journal").exists()
        tapeway.signal(number)
        assert await tapeway.ended() == 0

    cassette = json.loads((tapeway.store / "default.json").read_text())
    assert [interaction["kind"] for interaction in cassette["interactions"]] == ["http"]
    assert not (tapeway.store / "default.journal").exists()


async def test_an_idle_connection_does_not_hold_up_the_stop(tmp_path: Path) -> None:
    async with Upstream() as upstream:
        options = ("--upstream", upstream.url, "--drain-timeout", "600")
        async with Tapeway(tmp_path, *options) as tapeway, RawClient(tapeway.proxy) as client:
            await client.ask(request("/one"))
            tapeway.signal(signal.SIGTERM)
            assert await tapeway.ended() == 0


async def test_the_rest_of_an_upload_that_was_refused_does_not_hold_up_the_stop(
    tmp_path: Path,
) -> None:
    options = ("--max-body", "1MiB", "--drain-timeout", "4")
    async with Tapeway(tmp_path, *options) as tapeway, RawClient(tapeway.proxy) as client:
        await client.send(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\nbegun")
        assert (await client.answer()).status == 413
        tapeway.signal(signal.SIGTERM)
        assert await tapeway.ended() == 0

    assert "aborting calls" not in tapeway.stderr


@pytest.mark.parametrize("mode", ["auto", "passthrough"])
async def test_a_call_in_flight_is_answered_within_the_drain_and_nobody_else_is_let_in(
    tmp_path: Path, mode: str
) -> None:
    async with Upstream() as upstream:
        upstream.gate.clear()
        options = ("--upstream", upstream.url, "--mode", mode, "--drain-timeout", "60")
        async with Tapeway(tmp_path, *options) as tapeway, asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(tapeway.ask("/slow"))
            await upstream.was_asked("/slow")
            tapeway.signal(signal.SIGTERM)
            await tapeway.unready()
            with pytest.raises(ConnectionRefusedError):
                await tapeway.ask("/new")
            upstream.gate.set()
            answer = await asked
            assert await tapeway.ended() == 0

    assert answer.body == upstream.only_answer("/slow")
    assert answer.value(b"connection") == b"close"
    if mode == "auto":
        assert answer.outcome == b"recorded"
        assert "/slow" in (tapeway.store / "default.json").read_text()


async def test_a_kept_connection_may_replay_during_the_drain_but_start_no_live_call(
    tmp_path: Path,
) -> None:
    reuse_all(tmp_path)
    async with Upstream() as upstream:
        options = ("--upstream", upstream.url, "--drain-timeout", "60")
        async with Tapeway(tmp_path, *options) as tapeway, asyncio.TaskGroup() as tasks:
            await tapeway.ask("/known")
            async with RawClient(tapeway.proxy) as one, RawClient(tapeway.proxy) as two:
                await one.ask(request("/known", b"", tapeway.login))
                await two.ask(request("/known", b"", tapeway.login))
                upstream.gate.clear()
                slow = tasks.create_task(tapeway.ask("/slow"))
                await upstream.was_asked("/slow")
                tapeway.signal(signal.SIGTERM)
                await tapeway.unready()
                known = await one.ask(request("/known", b"", tapeway.login))
                new = await two.ask(request("/new"))
            upstream.gate.set()
            assert (await slow).status == 200
            assert await tapeway.ended() == 0

    assert known.body == upstream.only_answer("/known")
    assert known.value(b"connection") == b"close"
    assert (new.status, code_of(new)) == (503, "draining")
    assert upstream.asks["/new"] == 0


@pytest.mark.parametrize(
    ("mode", "drain"), [("auto", "0.2"), ("record", "0"), ("passthrough", "0.2")]
)
async def test_a_call_that_outlasts_the_drain_is_told_so_and_leaves_nothing(
    tmp_path: Path, mode: str, drain: str
) -> None:
    async with Upstream() as upstream:
        upstream.gate.clear()
        options = ("--upstream", upstream.url, "--mode", mode, "--drain-timeout", drain)
        async with Tapeway(tmp_path, *options) as tapeway, asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(tapeway.ask("/slow")) for _ in range(2)]
            await upstream.was_asked("/slow")
            tapeway.signal(signal.SIGTERM)
            answers = [await task for task in asked]
            assert await tapeway.ended() == 0

    for answer in answers:
        assert (answer.status, code_of(answer)) == (503, "draining")
    assert list(tapeway.store.glob("*.json")) == []
    assert list(tapeway.store.glob("*.journal")) == []


async def test_an_answer_that_is_cut_by_the_stop_does_not_look_whole(tmp_path: Path) -> None:
    async with Upstream(chunked=True) as upstream:
        upstream.rest.clear()
        options = ("--upstream", upstream.url, "--mode", "passthrough", "--drain-timeout", "0.2")
        async with Tapeway(tmp_path, *options) as tapeway, RawClient(tapeway.proxy) as client:
            await client.send(request("/cut"))
            await tapeway.until(lambda: upstream.answers, "the upstream began")
            tapeway.signal(signal.SIGTERM)
            answer = await client.answer()
            assert await tapeway.ended() == 0

    assert not answer.complete


async def test_a_slow_reader_gets_its_whole_answer_within_the_drain(tmp_path: Path) -> None:
    async with Upstream(size=8 * 2**20) as upstream:
        options = ("--upstream", upstream.url, "--drain-timeout", "60")
        async with Tapeway(tmp_path, *options) as tapeway:
            with socket.create_connection(address_of(tapeway.proxy)) as reader:
                reader.sendall(request("/large", b"", tapeway.login))
                whole = await tapeway.ask("/large")
                await tapeway.until(lambda: _unread(reader), "it began to answer")
                tapeway.signal(signal.SIGTERM)
                await tapeway.unready()
                # Longer than any grace behind the drain: this is what the reader does meanwhile.
                await asyncio.sleep(2)
                await asyncio.to_thread(_read_to_the_end, reader, whole.body)
            assert await tapeway.ended() == 0


@pytest.mark.slow
async def test_readers_that_stopped_reading_do_not_hold_up_the_stop(tmp_path: Path) -> None:
    async with Upstream(size=8 * 2**20) as upstream:
        options = ("--upstream", upstream.url, "--drain-timeout", "0.2")
        async with Tapeway(tmp_path, *options) as tapeway:
            with ExitStack() as stack:
                for _ in range(20):
                    place = socket.create_connection(address_of(tapeway.proxy))
                    reader = stack.enter_context(place)
                    reader.sendall(request("/large"))
                    await tapeway.until(partial(_unread, reader), "it began to answer")
                tapeway.signal(signal.SIGTERM)
                async with asyncio.timeout(DOCKER_S):
                    assert await tapeway.ended() == 0


@pytest.mark.parametrize("part", ["head", "body"])
async def test_half_a_request_does_not_hold_up_the_stop(tmp_path: Path, part: str) -> None:
    reuse_all(tmp_path)
    whole = request("/up", b"x" * 100)
    sent = whole[: 20 if part == "head" else -50]
    async with Upstream() as upstream:
        options = ("--upstream", upstream.url, "--drain-timeout", "0.2")
        async with Tapeway(tmp_path, *options) as tapeway, RawClient(tapeway.proxy) as client:
            # From here on a recording may answer what comes.
            await tapeway.ask("/in-between")
            await client.send(sent)
            await tapeway.ask("/in-between")
            tapeway.signal(signal.SIGTERM)
            async with asyncio.timeout(DOCKER_S):
                rest = await client.rest()
                assert await tapeway.ended() == 0

    if part == "body":
        assert rest.startswith(b"HTTP/1.1 503 ")
        assert b'"draining"' in rest
    assert upstream.asks == {"/in-between": 1}


@pytest.mark.parametrize("number", STOPPING, ids=lambda number: number.name)
async def test_a_second_signal_stops_at_once_and_loses_nothing(
    tmp_path: Path, number: signal.Signals
) -> None:
    async with Upstream() as upstream:
        options = ("--upstream", upstream.url, "--drain-timeout", "600")
        async with Tapeway(tmp_path, *options) as tapeway, asyncio.TaskGroup() as tasks:
            kept = await tapeway.ask("/kept")
            upstream.gate.clear()
            asked = tasks.create_task(_asked(tapeway, "/slow"))
            await upstream.was_asked("/slow")
            tapeway.signal(signal.SIGTERM)
            await tapeway.unready()
            tapeway.signal(number)
            assert await tapeway.ended() == 1
            assert await asked is None

        async with Tapeway(tmp_path, "--mode", "replay") as again:
            assert (await again.ask("/kept")).body == kept.body


async def test_a_follower_of_the_events_does_not_hold_up_the_stop(tmp_path: Path) -> None:
    async with Tapeway(tmp_path, "--drain-timeout", "600") as tapeway:
        admin = str(tapeway.ready["admin"])
        reader, writer = await asyncio.open_connection(*address_of(admin))
        writer.write(request("/api/v1/events", host=admin.removeprefix("http://")))
        await reader.readuntil(b"entries follow")
        await tapeway.ask("/nothing")
        tapeway.signal(signal.SIGTERM)
        assert await tapeway.ended() == 0
        assert b"event: request" in await reader.read()
        writer.close()


async def test_its_ports_are_free_again_at_once(tmp_path: Path) -> None:
    ports = free_ports(2)
    listeners = ("--listen", f"127.0.0.1:{ports[0]}", "--admin-listen", f"127.0.0.1:{ports[1]}")
    async with Upstream() as upstream:
        for number in range(3):
            async with (
                Tapeway(tmp_path, "--upstream", upstream.url, *listeners) as tapeway,
                RawClient(tapeway.proxy) as client,
            ):
                # The side that closes first keeps the port busy for a minute: here tapeway does.
                await client.ask(request(f"/{number}"))
                assert await tapeway.stopped() == 0


async def test_an_eject_under_way_is_answered(tmp_path: Path) -> None:
    # Each sync takes a while, and an eject has several.
    trace = Trace(tmp_path / "trace", "-e", "trace=fsync", "-e", "inject=fsync:delay_exit=700000")
    async with Upstream() as upstream:
        options = ("--upstream", upstream.url, "--drain-timeout", "60")
        async with (
            Tapeway(tmp_path, *options, command=trace.command) as tapeway,
            asyncio.TaskGroup() as tasks,
        ):
            await tapeway.ask("/one")
            synced = len(trace.lines)
            ejected = tasks.create_task(tapeway.admin("POST", "/api/v1/eject", {}))
            await tapeway.until(lambda: len(trace.lines) > synced, "the eject began to write")
            tapeway.signal(signal.SIGTERM)
            code, report = await ejected
            assert code == 200
            assert report["cassettes"][0]["recorded"] == 1
            assert await tapeway.ended() == 0


async def test_a_file_edited_meanwhile_is_kept_and_so_is_what_was_recorded(tmp_path: Path) -> None:
    async with Upstream() as upstream:
        options = ("--upstream", upstream.url)
        async with Tapeway(tmp_path, *options) as tapeway:
            await tapeway.ask("/one")
        file = tapeway.store / "default.json"
        async with Tapeway(tmp_path, *options) as tapeway:
            two = (await tapeway.ask("/two")).body
            edited = file.read_text().replace('"text": "/one', '"text": "/uno')
            file.write_text(edited)
            assert await tapeway.stopped() == FAILURE
            said = tapeway.stderr.splitlines()[-1]
            assert said.startswith(f"tapeway: {file} was changed by somebody")
            assert f"{tapeway.store}/default.journal" in said
            assert file.read_text() == edited
        async with Tapeway(tmp_path, "--mode", "replay") as tapeway:
            assert (await tapeway.ask("/one")).body.startswith(b"/uno")
            assert (await tapeway.ask("/two")).body == two


async def test_a_stopped_process_goes_on_where_it_was(tmp_path: Path) -> None:
    async with Upstream() as upstream, Tapeway(tmp_path, "--upstream", upstream.url) as tapeway:
        upstream.gate.clear()
        async with asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(tapeway.ask("/slow"))
            await upstream.was_asked("/slow")
            tapeway.signal(signal.SIGSTOP)
            upstream.gate.set()
            waiting = tasks.create_task(tapeway.ask("/while-stopped"))
            tapeway.signal(signal.SIGCONT)
            assert (await asked).body == upstream.only_answer("/slow")
            assert (await waiting).body == upstream.only_answer("/while-stopped")


async def test_a_broken_pipe_signal_is_nothing_to_it(tmp_path: Path) -> None:
    async with Upstream() as upstream, Tapeway(tmp_path, "--upstream", upstream.url) as tapeway:
        tapeway.signal(signal.SIGPIPE)
        assert (await tapeway.ask("/one")).body == upstream.only_answer("/one")


async def test_a_hangup_is_nothing_to_one_that_was_started_to_survive_it(tmp_path: Path) -> None:
    # As nohup does.
    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    async with (
        Upstream() as upstream,
        Tapeway(tmp_path, "--upstream", upstream.url, before=ignore) as tapeway,
    ):
        tapeway.signal(signal.SIGHUP)
        assert (await tapeway.ask("/one")).body == upstream.only_answer("/one")
        code, _ = await tapeway.admin("GET", "/readyz")
        assert code == 200


def _unread(reader: socket.socket) -> bool:
    try:
        return bool(reader.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except BlockingIOError:
        return False


def _read_to_the_end(reader: socket.socket, body: bytes) -> None:
    with reader.makefile("rb") as stream:
        received = stream.read()
    assert received.endswith(b"\r\n\r\n" + body)


async def _asked(tapeway: Tapeway, target: str) -> Answer | None:
    try:
        return await tapeway.ask(target)
    except (ConnectionError, asyncio.IncompleteReadError):
        return None


async def test_the_recording_is_made_when_the_stop_comes_after_the_client_left(
    tmp_path: Path,
) -> None:
    async with Upstream() as upstream:
        upstream.gate.clear()
        async with Tapeway(tmp_path, "--upstream", upstream.url) as tapeway:
            async with RawClient(tapeway.proxy) as client:
                await client.send(request("/left", b"", tapeway.login))
                await upstream.was_asked("/left")
            tapeway.signal(signal.SIGTERM)
            await tapeway.unready()
            upstream.gate.set()
            assert await tapeway.ended() == 0
        async with Tapeway(tmp_path, "--mode", "replay") as tapeway:
            assert (await tapeway.ask("/left")).body == upstream.only_answer("/left")
