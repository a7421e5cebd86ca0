"""How the workers that replay a folder are told what changes, and ask what they cannot decide.

What is sent is pickled: both ends are the same program, and one started the other.
"""

import logging
import pickle
from asyncio import TaskGroup
from collections.abc import Callable, Coroutine, Sequence
from typing import TypeVar

from tapeway.core.cassette.plan import Incoming
from tapeway.core.model.control import Control, Mode
from tapeway.engine.replicas import Copy, Decision, PrimaryCassettes
from tapeway.errors import StoreAway, TapewayError, describe
from tapeway.workers.messages import Value
from tapeway.workers.pipe import Channel, PipeWriter
from tapeway.workers.process import WorkerProcess

log = logging.getLogger(__name__)
T = TypeVar("T")


class WorkerReplicas:
    """The workers, as the `Replicas` of the supervisor's cassettes."""

    def __init__(self) -> None:
        self._joined: list[WorkerProcess] = []
        self.collect: Callable[[], object] = lambda: None
        """Reads what the workers have used."""

    def join(self, worker: WorkerProcess) -> None:
        """Tell a worker of all that changes from now on."""
        self._joined.append(worker)

    def leave(self, worker: WorkerProcess) -> None:
        """Forget a worker that has ended."""
        if worker in self._joined:
            self._joined.remove(worker)

    async def apply(self, control: Control) -> Sequence[str]:
        return await self._tell("control", pickle.dumps(control))

    async def forget(self, name: str) -> None:
        await self._tell("forget", name)
        self.collect()

    async def _tell(self, what: str, argument: str | bytes) -> Sequence[str]:
        workers = list(self._joined)
        async with TaskGroup() as tasks:
            told = [tasks.create_task(each.tell(what, argument)) for each in workers]
        return [each.name for each, done in zip(workers, told, strict=True) if not done.result()]


async def answer(
    question: Value, worker: WorkerProcess, replicas: WorkerReplicas, primary: PrimaryCassettes
) -> None:
    """Answer what a worker asks; an error is an answer too."""
    match question:
        case ("join", int(number)):
            replicas.join(worker)
            worker.answer(number, pickle.dumps(primary.control))
        case ("load", int(number), str(name)):
            worker.answer(number, pickle.dumps(await _result(primary.copy(name))))
        case ("decide", int(number), bytes(data)):
            # Whoever asks now may know what others were given before.
            replicas.collect()
            name, incoming, mode = pickle.loads(data)  # noqa: S301 - our own child sent it
            result = await _result(primary.decision(name, incoming, mode))
            worker.answer(number, pickle.dumps(result))


async def _result(work: Coroutine[None, None, T]) -> T | TapewayError:
    try:
        return await work
    except TapewayError as exc:
        return exc
    except Exception as exc:
        log.error("a worker's question cannot be answered: %s", describe(exc))
        return TapewayError("this request cannot be decided on: the log says why")


class SupervisorPrimary:
    """The supervisor, as the `Primary` of a worker's cassettes."""

    def __init__(self, channel: Channel, pipe: PipeWriter) -> None:
        self._channel = channel
        self.note_use = pipe.note_use
        self._apply: Callable[[Control], None] = lambda control: None
        self._forget: Callable[[str], None] = lambda name: None

    async def join(
        self, apply: Callable[[Control], None], forget: Callable[[str], None]
    ) -> Control:
        self._apply, self._forget = apply, forget
        return await self._ask(Control, "join")

    async def load(self, name: str) -> Copy:
        return await self._ask(Copy, "load", name)

    async def decide(self, name: str, incoming: Incoming, mode: Mode) -> Decision:
        return await self._ask(Decision, "decide", pickle.dumps((name, incoming, mode)))

    def apply(self, data: bytes) -> None:
        """Have what the supervisor says be in force."""
        self._apply(pickle.loads(data))  # noqa: S301 - it comes from our own parent

    def forget(self, name: str) -> None:
        """Have a cassette be unloaded."""
        self._forget(name)

    async def _ask(self, kind: type[T], question: str, *arguments: str | bytes) -> T:
        data = await self._channel.ask(question, *arguments)
        if not isinstance(data, bytes):
            raise StoreAway("the process that supervises the workers is gone: tapeway is stopping")
        found = pickle.loads(data)  # noqa: S301 - it comes from our own parent
        if isinstance(found, kind):
            return found
        raise found
