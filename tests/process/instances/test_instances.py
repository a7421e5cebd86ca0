"""Several processes on one database: what holds for one holds for all of them together."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from math import inf
from pathlib import Path
from time import monotonic

import pytest

from tests.process.counting_upstream import Upstream
from tests.process.instances.shared_database import (
    COUNT,
    Traffic,
    at_once,
    done,
    in_rows,
    instances,
)
from tests.process.serving import DEADLINE_S, Tapeway, request
from tests.stores.postgres_server import fresh, run
from tests.support.raw_client import Answer, RawClient
from tests.support.reuse import reuse_all


@pytest.fixture
async def url(postgres_dsn: str) -> AsyncIterator[str]:
    """The address of a store of this test's own, with short leases."""
    async with fresh(postgres_dsn) as url:
        yield f"{url}&lease=2"


async def test_misses_on_all_of_them_ask_once_for_each_request(tmp_path: Path, url: str) -> None:
    reuse_all(tmp_path)
    config = ("--config", str(tmp_path / "tapeway.toml"))
    different = [f"/{number}" for number in range(25)]
    async with (
        Upstream() as upstream,
        instances(tmp_path, url, "--upstream", upstream.url, *config) as members,
    ):
        upstream.gate.clear()
        async with asyncio.TaskGroup() as tasks:
            asking = [tasks.create_task(in_rows(member, "/same", 20, 5)) for member in members]
            await upstream.was_asked("/same")
            upstream.gate.set()
        mixed = await at_once(members, [target for target in different for _ in range(COUNT)])

    equal = [answer for task in asking for answer in task.result()]
    assert len(equal) == COUNT * 100
    assert {(answer.status, answer.body) for answer in equal} == {
        (200, upstream.only_answer("/same"))
    }
    assert Counter(answer.outcome for answer in equal) == {
        b"recorded": 1,
        b"replayed": len(equal) - 1,
    }
    for target, answers in zip(different, _grouped(mixed, COUNT), strict=True):
        assert {answer.body for answer in answers} == {upstream.only_answer(target)}
    assert Counter(answer.outcome for answer in mixed) == {b"recorded": 25, b"replayed": 75}


def _grouped(answers: list[Answer], size: int) -> list[list[Answer]]:
    return [answers[at : at + size] for at in range(0, len(answers), size)]


@pytest.mark.slow
async def test_what_is_steered_on_one_is_in_force_on_all_when_it_is_answered(
    tmp_path: Path, url: str
) -> None:
    expected = {
        "auto": b"recorded",
        "record": b"recorded",
        "replay": b"miss",
        "passthrough": b"live",
    }
    steered: list[tuple[float, float, str]] = []
    async with (
        Upstream() as upstream,
        instances(tmp_path, url, "--upstream", upstream.url) as members,
    ):
        traffic = Traffic(members)
        async with traffic.running():
            for turn, mode in enumerate(("replay", "passthrough", "record", "replay", "auto")):
                sent = monotonic()
                await done(members[turn % COUNT], "PUT", "mode", {"mode": mode})
                steered.append((sent, monotonic(), mode))
                await traffic.reaches(3)
            sent = monotonic()
            await done(members[0], "POST", "insert", {"cassette": "other", "mode": "replay"})
            inserted = monotonic()
            await traffic.reaches(3)
        steered.append((sent, inserted, "replay"))

    ends = [sent for sent, _, _ in steered[1:]] + [inf]
    for (_, answered, mode), end in zip(steered, ends, strict=True):
        found = traffic.between(answered, end)
        assert {served.at for served in found} == set(range(COUNT)), mode
        assert {served.answer.outcome for served in found} == {expected[mode]}
    last = traffic.between(inserted, inf)
    assert {served.answer.value(b"Tapeway-Cassette") for served in last} == {b"other"}
    assert traffic.broken == 0


@pytest.mark.slow
async def test_who_does_not_hear_what_is_steered_is_named_and_acts_on_nothing_old(
    tmp_path: Path, url: str
) -> None:
    async with (
        Upstream() as upstream,
        instances(tmp_path, url, "--upstream", upstream.url, count=2) as (one, silent),
        asyncio.TaskGroup() as tasks,
    ):
        await silent.ask("/before")
        upstream.gate.clear()
        asked = tasks.create_task(silent.ask("/in-flight"))
        await upstream.was_asked("/in-flight")
        silent.signal(signal.SIGSTOP)
        steered = await asyncio.gather(
            one.admin("POST", "/api/v1/insert", {"cassette": "default"}),
            one.admin("PUT", "/api/v1/mode", {"mode": "passthrough"}),
            one.admin("POST", "/api/v1/rewind", {}),
        )
        # It takes over what the silent one has asked already.
        await done(one, "PUT", "mode", {"mode": "auto"})
        taken_over = tasks.create_task(one.ask("/in-flight"))
        await upstream.was_asked("/in-flight", 2)
        upstream.gate.set()
        stored = await taken_over
        await done(one, "PUT", "mode", {"mode": "replay"})
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(RawClient(silent.proxy)) for _ in range(20)]
            for number, client in enumerate(clients):
                await client.send(request(f"/new/{number}"))
            silent.signal(signal.SIGCONT)
            new = [await client.answer() for client in clients]
        fenced = await asked
        await silent.at_work()
        later = await silent.ask("/later")

    assert [code for code, _ in steered] == [200] * 3
    assert stored.outcome == b"recorded"
    assert (fenced.status, fenced.body) == (200, stored.body)
    assert {answer.outcome for answer in new} == {b"miss"}
    assert later.outcome == b"miss"
    assert [target for target in upstream.asks if target.startswith(("/new", "/later"))] == []


@pytest.mark.slow
async def test_the_call_of_a_killed_instance_is_made_again_by_one_other(
    tmp_path: Path, url: str
) -> None:
    async with (
        Upstream() as upstream,
        instances(tmp_path, url, "--upstream", upstream.url, count=3) as (leader, *others),
    ):
        upstream.gate.clear()
        async with asyncio.TaskGroup() as tasks:
            broken = tasks.create_task(cut_off(leader, "/x"))
            await upstream.was_asked("/x")
            waiting = [tasks.create_task(in_rows(other, "/x", 10, 1)) for other in others]
            leader.signal(signal.SIGKILL)
            await leader.ended()
            await upstream.was_asked("/x", 2)
            upstream.gate.set()
        await broken
        answers = [answer for task in waiting for answer in task.result()]

    assert upstream.asks["/x"] == 2
    assert len({answer.body for answer in answers}) == 1
    assert Counter(answer.outcome for answer in answers) == {b"recorded": 1, b"replayed": 19}


async def cut_off(member: Tapeway, target: str) -> None:
    """Ask, and get no answer."""
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await member.ask(target)


async def until_asking(instance: Tapeway) -> None:
    for _ in range(int(DEADLINE_S * 100)):
        if (await done(instance, "GET", "status"))["in_flight"]:
            return
        await asyncio.sleep(0.01)
    pytest.fail("it asks for nothing")


@pytest.mark.slow
async def test_one_that_stops_ends_its_calls_and_gives_its_leases_back(
    tmp_path: Path, postgres_dsn: str
) -> None:
    async with (
        fresh(postgres_dsn) as url,
        Upstream() as upstream,
        instances(
            # Nobody could wait for the end of such a lease here.
            *(tmp_path, f"{url}&lease=600", "--upstream", upstream.url),
            *("--drain-timeout", "1"),
            count=3,
        ) as (first, second, last),
    ):
        upstream.gate.clear()
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(first.ask("/ends"))]
            await upstream.was_asked("/ends")
            asked += [tasks.create_task(instance.ask("/ends")) for instance in (second, last)]
            for instance in (second, last):
                # They wait for the first one's answer.
                await until_asking(instance)
            first.signal(signal.SIGTERM)
            await first.unready()
            upstream.gate.set()
            assert await first.ended() == 0
        upstream.gate.clear()
        async with asyncio.TaskGroup() as tasks:
            broken_off = tasks.create_task(second.ask("/hangs"))
            await upstream.was_asked("/hangs")
            waiting = tasks.create_task(last.ask("/hangs"))
            assert await second.stopped() == 0
            await upstream.was_asked("/hangs", 2)
            upstream.gate.set()
        schema = url.rpartition("schema=")[2]
        leases = await run(postgres_dsn, 'SELECT * FROM "@".lease'.replace("@", schema))

    answers = [task.result() for task in asked]
    assert {(answer.status, answer.body) for answer in answers} == {
        (200, upstream.only_answer("/ends"))
    }
    assert [answer.outcome for answer in answers] == [b"recorded", b"replayed", b"replayed"]
    assert (broken_off.result().status, waiting.result().outcome) == (503, b"recorded")
    assert leases == []
