"""Live calls: one for all who ask the same, nothing given that is not durable, and the end."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from tapeway.core.cassette.plan import Answer, Incoming, LiveCall
from tapeway.core.model.cassette import CassetteHead, Recording
from tapeway.core.model.messages import Request
from tapeway.engine.recording.selection import Policy
from tapeway.engine.single_flight import Pending, SingleFlight
from tapeway.errors import (
    Draining,
    StoreFull,
    StorePoisoned,
    TapewayError,
    UpstreamError,
)
from tapeway.formats.native.document import encode
from tests.support.fakes.broker import RunningBroker, ServedAnswer, recorded, running_broker, until
from tests.support.fakes.failing_store import FakeStore
from tests.support.fakes.live_service import FakeAnswer

SECRET = b"sk-proj-Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4z"


def never(ask: LiveCall) -> Pending:
    """In place of what asks anew."""
    raise AssertionError(ask)


async def test_twenty_equal_misses_make_one_call_and_all_get_its_answer() -> None:
    async with running_broker() as running:
        running.responder.gate.clear()
        clients = [running.start() for _ in range(20)]
        await running.responder.reached(1)
        running.responder.gate.set()
        served = [await client for client in clients]

        assert running.responder.connections == 1
        assert {(recording.body, recording.index) for recording in served} == {(b"answer 1", 0)}
        assert [answer.outcome for answer in served] == ["recorded"] + ["replayed"] * 19
        assert await running.stored() == [b"answer 1"]


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        pytest.param(b'{"a": 1}', b'{"b":2}', id="plain"),
        pytest.param(b'{"api_key": "%b"}' % SECRET, b'{"b":2}', id="secret in the request"),
        pytest.param(b'{"a": 1}', b'{"api_key":"%b"}' % SECRET, id="secret in the answer"),
        pytest.param(b'{"a": 1.0}', b'{"b":2,"b":3}', id="read otherwise"),
    ],
)
async def test_what_was_read_of_a_recording_is_what_is_stored_of_it(
    asked: bytes, answered: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    appended: list[Recording] = []
    headers = ((b"content-type", b"application/json"),)

    async def append(name: str, head: CassetteHead, recording: Recording) -> None:
        appended.append(recording)

    async with running_broker() as running:
        monkeypatch.setattr(running.store, "append", append)
        running.responder.reply = lambda _: FakeAnswer(answered, headers=headers)
        await running.get(method="POST", headers=headers, body=asked)

    (recording,) = appended
    written = encode(recording.interaction, recording.read)
    assert written == encode(recording.interaction)
    assert SECRET.decode() not in str(written)


async def test_callers_with_other_credentials_share_no_call() -> None:
    keys = [((b"authorization", b"Bearer sk-%d-0123456789abcdef" % number),) for number in range(2)]
    asked = [("/v1/x", keys[0]), ("/v1/x", keys[1]), ("/v1/x?api_key=sk-2", ())]
    asked.append(("/v1/x?api_key=sk-3", ()))
    async with running_broker() as running, asyncio.TaskGroup() as clients:
        running.responder.gate.clear()
        for path, headers in [*asked, *asked]:
            clients.create_task(running.get(path, headers=headers))
        await running.responder.reached(len(asked))
        running.responder.gate.set()

    assert running.responder.connections == len(asked)


@pytest.mark.parametrize(
    "differing",
    [
        pytest.param(lambda ask: ask._replace(key=b"another"), id="key"),
        pytest.param(lambda ask: ask._replace(variant=b"another"), id="variant"),
        pytest.param(lambda ask: ask._replace(caller=b"another"), id="caller"),
    ],
)
async def test_a_request_that_differs_in_one_thing_alone_joins_no_call(
    differing: Callable[[LiveCall], LiveCall],
) -> None:
    ended = asyncio.Event()

    async def call() -> Answer | TapewayError:
        await ended.wait()
        return TapewayError("it ended")

    async with running_broker() as running, asyncio.TaskGroup() as tasks:
        request = Request("openai", "GET", "/", base="https://up")
        ask = await running.broker.decide("default", Incoming(request))
        assert isinstance(ask, LiveCall)
        calls = SingleFlight(tasks)
        calls.start(ask, call())
        equal, other = calls.join(ask, never), calls.join(differing(ask), never)
        ended.set()

    assert equal is not None
    assert other is None


@pytest.mark.parametrize("status", [200, 500])
async def test_clients_that_join_a_call_get_its_answer_decoded(
    status: int,
) -> None:
    packed, headers = gzip.compress(b"text"), ((b"Content-Encoding", b"gzip"),)
    async with running_broker() as running:
        running.responder.gate.clear()
        running.responder.reply = lambda _: FakeAnswer(packed, status=status, headers=headers)
        offered = ((b"Accept-Encoding", b"gzip"),)
        clients = [running.start(headers=offered) for _ in range(2)]
        await running.responder.reached(1)
        running.responder.gate.set()

        assert [(await client).body for client in clients] == [packed, b"text"]


@pytest.mark.parametrize("leaving", [[0], [1], [0, 1, 2]])
async def test_clients_that_leave_stop_neither_the_recording_nor_the_others(
    leaving: list[int],
) -> None:
    async with running_broker() as running:
        running.responder.gate.clear()
        clients = [running.start() for _ in range(4)]
        await running.responder.reached(1)
        for number in leaving:
            clients[number].cancel()
        results = await asyncio.gather(
            *[clients[number] for number in leaving], return_exceptions=True
        )
        running.responder.gate.set()
        stay = [client for number, client in enumerate(clients) if number not in leaving]

        assert all(isinstance(result, asyncio.CancelledError) for result in results)
        assert {(await client).body for client in stay} == {b"answer 1"}
        assert running.responder.connections == 1


async def test_when_the_call_fails_all_get_the_error_and_the_next_asks_anew() -> None:
    async with running_broker() as running:
        running.responder.gate.clear()
        running.responder.refuse(UpstreamError("it is down", status=504, code="upstream_timeout"))
        clients = [running.start() for _ in range(5)]
        await running.responder.reached(1)
        running.responder.gate.set()
        results = await asyncio.gather(*clients, return_exceptions=True)

        told = "it is down; --record-failures stores such failures"
        assert {(type(result), str(result)) for result in results} == {(UpstreamError, told)}
        assert {(result.status, result.code) for result in results} == {(504, "upstream_timeout")}  # type: ignore[union-attr]
        assert len(set(map(id, results))) == 5
        running.responder.error = None
        assert await running.get() == ServedAnswer("recorded", b"answer 2", 0)


async def test_an_answer_that_is_not_kept_is_the_answer_of_all_who_waited() -> None:
    async with running_broker() as running:
        running.responder.gate.clear()
        running.responder.reply = lambda number: FakeAnswer(b"busy %d" % number, status=429)
        clients = [running.start() for _ in range(3)]
        await running.responder.reached(1)
        running.responder.gate.set()

        assert {await client for client in clients} == {ServedAnswer("live", b"busy 1", None)}
        assert (await running.get()).body == b"busy 2"


async def test_different_requests_and_cassettes_do_not_wait_for_each_other() -> None:
    async with running_broker() as running:
        running.responder.gate.clear()
        clients = [running.start("/a"), running.start("/b"), running.start("/a", cassette="other")]
        await running.responder.reached(3)
        running.responder.gate.set()

        assert {(await client).outcome for client in clients} == {"recorded"}


async def test_a_request_after_a_finished_call_gets_its_own_answer() -> None:
    async with running_broker(policy=Policy(repeats="miss")) as running:
        first = running.start()
        # In this very step the answer was taken in; its call is not off the list yet.
        await until(lambda: running.broker.cassette(None) and running.held())
        second = await running.get()

        assert [(await first).body, second.body] == [b"answer 1", b"answer 2"]


async def test_a_client_of_a_later_take_has_used_the_shared_recording() -> None:
    async with running_broker() as running:
        running.responder.gate.clear()
        first = running.start()
        await running.responder.reached(1)
        await running.broker.rewind()
        second = running.start()
        await asyncio.sleep(0)
        running.responder.gate.set()

        assert ((await first).outcome, (await second).outcome) == ("recorded", "replayed")
        report = await running.broker.eject(prune=True)
        assert report.unused == ()
        assert await running.stored() == [b"answer 1"]


@pytest.mark.parametrize(
    "error", [StoreFull("disk is full"), StorePoisoned("sync failed"), UpstreamError("odd")]
)
async def test_an_answer_that_could_not_be_recorded_is_neither_sent_nor_kept(
    error: TapewayError,
) -> None:
    async with running_broker() as running:
        running.store.fail("append", error)  # type: ignore[arg-type]

        with pytest.raises(type(error), match=error.message):
            await running.get()
        assert running.held() == []
        assert await running.get() == ServedAnswer("recorded", b"answer 2", 1)
        assert await running.stored() == running.held() == [b"answer 2"]


async def test_a_failed_recording_leaves_the_recording_to_replace_to_the_next() -> None:
    async with running_broker("record", store=await recorded("old")) as running:
        running.store.fail("append", StoreFull("disk is full"))
        with pytest.raises(StoreFull):
            await running.get()
        assert await running.stored() == running.held() == [b"old"]

        await running.get()

        assert await running.stored() == running.held() == [b"answer 2"]


async def test_an_answer_is_given_only_when_it_is_durable() -> None:
    async with running_broker() as running:
        gate = running.store.shut("append")
        clients = [running.start() for _ in range(3)]
        await running.store.reached("append default")

        assert not any(client.done() for client in clients)
        assert running.held() == []
        gate.set()
        assert {(await client).body for client in clients} == {b"answer 1"}


async def test_draining_lets_calls_end_and_starts_none() -> None:
    async with running_broker(store=await recorded("old", path="/old")) as running:
        running.responder.gate.clear()
        first = running.start()
        await running.responder.reached(1)
        running.broker.drain()
        waiting = running.start()

        assert running.broker.draining
        with pytest.raises(Draining):
            await running.get("/new")
        assert (await running.get("/old")).outcome == "replayed"
        running.responder.gate.set()
        assert ((await first).outcome, (await waiting).outcome) == ("recorded", "replayed")


async def test_draining_refuses_to_relay() -> None:
    async with running_broker("passthrough") as running:
        running.broker.drain()

        with pytest.raises(Draining):
            await running.get()
        request = Request("openai", "GET", "/", base="https://up")
        plan = await running.broker.decide("default", Incoming(request))
        assert isinstance(plan, LiveCall)
        with pytest.raises(Draining):
            running.broker.recorder.relay(plan)


async def test_cancelling_aborts_calls_and_all_their_clients_get_draining() -> None:
    async with running_broker() as running:
        running.responder.gate.clear()
        clients = [running.start(), running.start(), running.start("/other")]
        await running.responder.reached(2)
        running.broker.cancel()
        results = await asyncio.gather(*clients, return_exceptions=True)

        assert {type(result) for result in results} == {Draining}
        assert await running.stored() == []


async def test_the_clients_of_a_call_cancelled_before_its_first_step_get_draining() -> None:
    async with running_broker() as running:
        await running.broker.prepare()
        client = running.start()
        await until(lambda: running.broker.in_flight)
        assert running.responder.asked == []
        running.broker.cancel()

        with pytest.raises(Draining):
            await client


@asynccontextmanager
async def asked_by_staying_clients(
    *paths: str,
) -> AsyncIterator[tuple[RunningBroker, list["asyncio.Task[Answer]"]]]:
    """Clients whose tasks run their calls, all of which wait for their upstream."""

    async def ask(path: str) -> Answer:
        request = Request("openai", "GET", path, base="https://up")
        plan = await running.broker.decide("default", Incoming(request))
        assert isinstance(plan, LiveCall)
        try:
            return await running.broker.recorder.perform(plan)
        finally:
            task = asyncio.current_task()
            assert task is not None
            assert not task.cancelling()

    async with running_broker() as running:
        running.responder.gate.clear()
        clients = [asyncio.get_running_loop().create_task(ask(path)) for path in paths]
        await running.responder.reached(len({*paths}))
        yield running, clients


async def test_a_call_in_its_clients_task_is_joined_and_counted() -> None:
    async with asked_by_staying_clients("/v1/x", "/v1/x") as (running, clients):
        other = running.start()
        await asyncio.sleep(0)
        assert (running.broker.in_flight, running.broker.recordings_in_flight("default")) == (1, 1)
        running.responder.gate.set()

        assert [(await client).outcome for client in clients] == ["recorded", "replayed"]
        assert (await other).outcome == "replayed"
        assert running.responder.connections == 1
        assert await running.stored() == [b"answer 1"]


async def test_the_error_of_a_call_in_its_clients_task_goes_to_all_who_wait() -> None:
    async with asked_by_staying_clients("/v1/x", "/v1/x") as (running, clients):
        running.responder.error = UpstreamError("it is away")
        running.responder.gate.set()

        results = await asyncio.gather(*clients, return_exceptions=True)
        assert [(type(result), str(result)) for result in results] == [
            (UpstreamError, "it is away")
        ] * 2


async def test_cancelling_calls_cancels_no_client() -> None:
    async with asked_by_staying_clients("/v1/x", "/other") as (running, clients):
        other = running.start()
        await asyncio.sleep(0)
        running.broker.cancel()

        results = await asyncio.gather(*clients, other, return_exceptions=True)
        assert {type(result) for result in results} == {Draining}
        assert running.broker.in_flight == 0


async def test_a_call_cancelled_with_its_clients_task_ends_for_all() -> None:
    begun = asyncio.Event()

    async def call() -> Answer | TapewayError:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with running_broker() as running, asyncio.TaskGroup() as tasks:
        request = Request("openai", "GET", "/", base="https://up")
        ask = await running.broker.decide("default", Incoming(request))
        assert isinstance(ask, LiveCall)
        calls = SingleFlight(tasks)
        client = asyncio.get_running_loop().create_task(calls.run(ask, call()))
        await begun.wait()
        joined = calls.join(ask, never)
        assert joined is not None
        client.cancel()
        with pytest.raises(Draining):
            await joined.answer()

    assert client.cancelled()
    assert len(calls) == 0


async def test_the_end_waits_for_calls_and_closes_the_store_last() -> None:
    store = FakeStore()
    async with running_broker(store=store) as running:
        running.responder.gate.clear()
        running.start()
        await running.responder.reached(1)
        asyncio.get_running_loop().call_soon(running.responder.gate.set)

    assert store.calls == ["open", "load default", "append default", "close"]


async def test_an_error_inside_ends_the_calls_and_comes_out_as_it_is() -> None:
    async def fail(running: RunningBroker) -> None:
        running.responder.gate.clear()
        running.start()
        await running.responder.reached(1)
        raise LookupError("inside")

    with pytest.raises(LookupError, match="inside"):
        async with running_broker() as running:
            await fail(running)
    assert running.store.calls[-1] == "close"
    assert running.broker.in_flight == 0


async def test_a_store_that_does_not_open_is_not_closed() -> None:
    store = FakeStore()
    store.fail("open", StorePoisoned("no"))

    with pytest.raises(StorePoisoned):
        async with running_broker(store=store):
            pass
    assert store.calls == ["open"]
