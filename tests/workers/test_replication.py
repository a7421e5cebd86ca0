"""What a supervisor tells the workers that replay a folder, and answers them."""

import pickle
from typing import Any, cast

import pytest

from tapeway.core.cassette.plan import Incoming
from tapeway.core.model.control import Control, Mode
from tapeway.core.model.messages import Request
from tapeway.engine.replicas import Copy, Decision, PrimaryCassettes
from tapeway.errors import CassetteCorrupt, StoreAway, TapewayError
from tapeway.workers.messages import Value
from tapeway.workers.pipe import Channel, PipeWriter
from tapeway.workers.process import WorkerProcess
from tapeway.workers.replication import SupervisorPrimary, WorkerReplicas, answer

CONTROL = Control("replay", "default", takes=3, since=2)
INCOMING = Incoming(Request("openai", "GET", "/x"))


class FakeWorker:
    """A worker that follows, or does not, and what it was told and answered."""

    def __init__(self, name: str = "worker 1", *, follows: bool = True) -> None:
        self.name = name
        self.told: list[tuple[str, object]] = []
        self.answers: dict[int, Any] = {}
        self._follows = follows

    async def tell(self, what: str, argument: str | bytes) -> bool:
        decoded = pickle.loads(argument) if isinstance(argument, bytes) else argument  # noqa: S301
        self.told.append((what, decoded))
        return self._follows

    def answer(self, number: int, value: bytes) -> None:
        self.answers[number] = pickle.loads(value)  # noqa: S301


class FakePrimary:
    """Decides nothing, and notes in which order it was asked."""

    control = CONTROL

    def __init__(self, done: list[str], error: Exception | None = None) -> None:
        self._done = done
        self._error = error

    async def copy(self, name: str) -> Copy:
        if self._error is not None:
            raise self._error
        return Copy(7, name)

    async def decision(self, name: str, incoming: Incoming, mode: Mode) -> Decision:
        self._done.append("decided")
        assert (name, incoming, mode) == ("default", INCOMING, "replay")
        return Decision(7, b"key", recording=4)


async def answered(
    question: Value, worker: FakeWorker, replicas: WorkerReplicas, primary: FakePrimary
) -> None:
    await answer(
        question, cast("WorkerProcess", worker), replicas, cast("PrimaryCassettes", primary)
    )


async def test_who_joins_is_told_of_all_that_follows_until_it_leaves() -> None:
    replicas = WorkerReplicas()
    one, other = FakeWorker(), FakeWorker("worker 2", follows=False)
    for each in (one, other):
        await answered(("join", 5), each, replicas, FakePrimary([]))
    laggards = await replicas.apply(CONTROL)
    replicas.leave(cast("WorkerProcess", other))
    replicas.leave(cast("WorkerProcess", FakeWorker()))
    await replicas.forget("x")

    assert one.answers == {5: CONTROL}
    assert laggards == ["worker 2"]
    assert one.told == [("control", CONTROL), ("forget", "x")]
    assert other.told == [("control", CONTROL)]


async def test_what_workers_used_is_read_before_a_decision_and_after_they_unloaded() -> None:
    replicas, done = WorkerReplicas(), list[str]()
    replicas.collect = lambda: done.append("read")
    worker = FakeWorker()
    asked = pickle.dumps(("default", INCOMING, "replay"))
    await answered(("decide", 1, asked), worker, replicas, FakePrimary(done))
    await replicas.forget("x")

    assert done == ["read", "decided", "read"]
    assert worker.answers == {1: Decision(7, b"key", recording=4)}


async def test_an_error_is_an_answer_of_its_kind(caplog: pytest.LogCaptureFixture) -> None:
    worker = FakeWorker()
    for number, error in enumerate((CassetteCorrupt("bad.json: no"), ValueError("sk-secret"))):
        primary = FakePrimary([], error)
        await answered(("load", number, "x"), worker, WorkerReplicas(), primary)

    assert type(worker.answers[0]) is CassetteCorrupt
    assert worker.answers[0].message == "bad.json: no"
    assert type(worker.answers[1]) is TapewayError
    assert "sk-secret" not in caplog.text + worker.answers[1].message
    assert "ValueError at test_replication.py" in caplog.text


class FakeChannel:
    """A channel whose other end gives this answer."""

    def __init__(self, value: object) -> None:
        self._value = value

    async def ask(self, question: str, *arguments: Value) -> Value:
        return None if self._value is None else pickle.dumps(self._value)


class FakePipe:
    def note_use(self, *used: int) -> None: ...


def primary_behind(value: object) -> SupervisorPrimary:
    return SupervisorPrimary(cast("Channel", FakeChannel(value)), cast("PipeWriter", FakePipe()))


async def test_a_worker_gets_the_answer_or_the_error() -> None:
    assert await primary_behind(Copy(7, "mark")).load("x") == Copy(7, "mark")
    with pytest.raises(CassetteCorrupt, match=r"bad\.json"):
        await primary_behind(CassetteCorrupt("bad.json")).load("x")
    with pytest.raises(StoreAway, match="is gone"):
        await primary_behind(None).load("x")
