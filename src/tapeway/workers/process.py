"""One worker, as the process sees it that looks after the workers."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Self, cast

from tapeway.errors import TapewayError
from tapeway.server.listeners import Listener
from tapeway.workers.messages import Assignment, Trouble, Value, raised
from tapeway.workers.pipe import Channel, PipeReader

_ANSWER_S = 2.0
"""A worker that answers nothing for so long is taken for one that serves nobody either."""

_SILENT_S = 0.1

MODULE = "tapeway.workers"


@dataclass(frozen=True, slots=True)
class Standing:
    """How a worker stood when it was asked last; `silent` is one that did not answer."""

    in_flight: int = 0
    trouble: Trouble | None = None
    silent: bool = False


class WorkerProcess:
    """A worker's process, from its start to its end."""

    def __init__(
        self, number: int, process: asyncio.subprocess.Process, channel: Channel, inlet: PipeReader
    ) -> None:
        self.number = number
        self.inlet = inlet
        self.connections = 0
        self.standing = Standing()
        self._process = process
        self._channel = channel
        self._asked = 0
        self._open: dict[int, asyncio.Future[Value]] = {}
        self._gone = False
        self.serving = False

    @classmethod
    async def start(cls, number: int, listener: Listener, assignment: Assignment) -> Self:
        """Start one that will serve this listener."""
        ours, theirs = socket.socketpair()
        inlet, outlet = os.pipe()
        try:
            handed = (theirs.fileno(), outlet, listener.socket.fileno())
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", MODULE, str(number), *map(str, handed)),
                stdin=asyncio.subprocess.DEVNULL,
                # The ready line is all that comes from there.
                stdout=asyncio.subprocess.DEVNULL,
                pass_fds=handed,
                # A terminal's signals are for the process above, which tells its workers.
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            os.close(inlet)
            raise
        finally:
            theirs.close()
            os.close(outlet)
        channel = await Channel.over(ours)
        channel.send(assignment.packed())
        return cls(number, process, channel, PipeReader(inlet))

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ready(self) -> None:
        """Return when it serves. Raises what kept it from that."""
        try:
            match await self._channel.receive():
                case ("ready",):
                    self.serving = True
                    return
                case ("failed", *fault):
                    raise raised(cast("Trouble", tuple(fault)))
        except EOFError:
            pass
        raise TapewayError(f"worker {self.number} ended before it served: its log says why")

    async def attend(self, hint: Callable[[], None]) -> None:
        """Hear what it says until it is gone; `hint` is called when it has told something."""
        with suppress(EOFError):
            while True:
                match await self._channel.receive():
                    case ("hint",):
                        hint()
                    case ("answer", int(asked), value):
                        self._answered(asked, value)
        self._gone, self.serving = True, False
        for asked in list(self._open):
            self._answered(asked, None)

    async def look(self) -> None:
        """Ask how it stands. When this returns, all is in the inlet that it had told before."""
        try:
            # Whoever asks next need not wait as long to be told the same.
            async with asyncio.timeout(_SILENT_S if self.standing.silent else _ANSWER_S):
                answer = await self._ask("look")
        except TimeoutError:
            self.standing = Standing(self.standing.in_flight, silent=True)
            return
        if isinstance(answer, tuple):
            in_flight, trouble = answer
            self.standing = Standing(cast("int", in_flight), cast("Trouble | None", trouble))

    async def quiet(self, cassette: str) -> None:
        """Return when no live call of its own records on this cassette, or it is gone."""
        await self._ask("quiet", cassette)

    def drain(self) -> None:
        """Have it let what is under way end, and end then."""
        self._channel.send(("drain",))

    def kill(self) -> None:
        """End it at once."""
        with suppress(ProcessLookupError):
            self._process.kill()

    async def ended(self) -> int:
        """Its exit code; negative for the signal that ended it."""
        return await self._process.wait()

    def close(self) -> None:
        """Let go of what led to it."""
        self._channel.close()
        self.inlet.close()

    async def _ask(self, what: str, *more: str) -> Value:
        if self._gone:
            return None
        self._asked += 1
        asked = self._asked
        answer: asyncio.Future[Value] = asyncio.get_running_loop().create_future()
        self._open[asked] = answer
        self._channel.send((what, asked, *more))
        try:
            return await answer
        finally:
            self._open.pop(asked, None)

    def _answered(self, asked: int, value: Value) -> None:
        answer = self._open.get(asked)
        if answer is not None and not answer.done():
            answer.set_result(value)


def said(code: int) -> str:
    """What an exit code says."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
