"""A worker process, as the supervisor sees it: started, asked, stopped."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Self, cast

from tapeway.admin.handlers.inspection.followers import RecordingNews
from tapeway.admin.models.inspection import RecordingsUnderWay, RecordingUnderWay
from tapeway.errors import TapewayError
from tapeway.ports import NONE_OPEN, OpenConnections
from tapeway.server.listeners import Listener
from tapeway.workers.messages import EncodedError, Value, WorkerConfig, decode_error
from tapeway.workers.pipe import Channel, PipeReader

MODULE = "tapeway.workers"

RESPONSE_S = 2.0
"""After this silence, in seconds, a worker is assumed to serve no client."""
UNRESPONSIVE_S = 0.1
"""How long to wait for the answer to an earlier question, in seconds."""


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """What a worker reported last; an `unresponsive` one did not respond to the last question."""

    in_flight: int = 0
    error: EncodedError | None = None
    open_connections: OpenConnections = NONE_OPEN
    unresponsive: bool = False


class WorkerProcess:
    """A worker's process from start to end."""

    def __init__(
        self, number: int, process: asyncio.subprocess.Process, channel: Channel, pipe: PipeReader
    ) -> None:
        self.number = number
        self.pipe = pipe
        self.status = WorkerStatus()
        self.serving = False
        self._process = process
        self._channel = channel
        self._unanswered: asyncio.Future[Value] | None = None
        """A question that was not answered in time. Until the answer comes, no other one is asked."""

    @classmethod
    async def start(cls, number: int, listener: Listener, config: WorkerConfig) -> Self:
        """Start a worker for this listener. Raises OSError."""
        ours, theirs = socket.socketpair()
        read_end, write_end = os.pipe()
        try:
            inherited = (theirs.fileno(), write_end, listener.socket.fileno())
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", MODULE, str(number), *map(str, inherited)),
                stdin=asyncio.subprocess.DEVNULL,
                # Only the supervisor writes to standard output: the ready line.
                stdout=asyncio.subprocess.DEVNULL,
                pass_fds=inherited,
                # The supervisor alone gets the terminal's signals, and tells the workers.
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            os.close(read_end)
            raise
        finally:
            theirs.close()
            os.close(write_end)
        channel = await Channel.over(ours)
        channel.send(config.encode())
        return cls(number, process, channel, PipeReader(read_end))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def name(self) -> str:
        """The worker's name for people."""
        return f"worker {self.number} (process {self.pid})"

    async def ready(self) -> None:
        """Return when the worker serves. Raises the error that prevented serving."""
        try:
            while True:
                match await self._channel.receive():
                    case ("ready",):
                        self.serving = True
                        return
                    case ("failed", *error):
                        raise decode_error(cast("EncodedError", tuple(error)))
        except EOFError:
            pass
        raise TapewayError(f"worker {self.number} ended before it served: its log says why")

    async def receive(self, hint: Callable[[], object]) -> None:
        """Receive the worker's messages until the end; each report leads to a call of `hint`."""
        with suppress(EOFError):
            while True:
                if await self._channel.receive() == ("hint",):
                    hint()
        self.serving = False

    async def update_status(self) -> None:
        """Ask for the worker's status. Afterwards the pipe holds all requests served before."""
        if (earlier := self._unanswered) is not None:
            # The full wait was done once: later callers need not wait as long.
            await asyncio.wait([earlier], timeout=UNRESPONSIVE_S)
            if not earlier.done():
                return
        # An earlier answer may lack requests that were served since.
        question = self._channel.asked("status")
        await asyncio.wait([question], timeout=RESPONSE_S)
        if not question.done():
            self._unanswered = question
            self.status = WorkerStatus(self.status.in_flight, unresponsive=True)
            return
        self._unanswered, answer = None, question.result()
        if isinstance(answer, tuple):
            in_flight, error, in_use, idle = cast(
                "tuple[int, EncodedError | None, int, int]", answer
            )
            self.status = WorkerStatus(in_flight, error, OpenConnections(in_use, idle))

    async def wait_for_recordings(self, cassette: str) -> None:
        """Return when no live call of the worker records into the cassette, or the worker is gone."""
        await self._channel.ask("wait_for_recordings", cassette)

    async def recordings(self) -> list[RecordingUnderWay]:
        """The worker's live calls; none if the worker is gone or does not respond."""
        try:
            async with asyncio.timeout(RESPONSE_S):
                answer = await self._channel.ask("recordings")
        except TimeoutError:
            return []
        if not isinstance(answer, bytes):
            return []
        return RecordingsUnderWay.model_validate_json(answer).recordings

    async def recording_news(self, id: str, follower: str) -> RecordingNews | None:
        """A call's news since a follower's last visit; None if the call is not under way."""
        # Without a time limit: a follower would miss the news of an abandoned question.
        answer = await self._channel.ask("recording_news", id, follower)
        return RecordingNews(*cast("tuple[bytes | None, bool]", answer)) if answer else None

    def leave_recording(self, follower: str) -> None:
        """Let the worker forget a follower."""
        self._channel.send(("leave_recording", follower))

    def drain(self) -> None:
        """Tell the worker to finish calls in flight, and then to end."""
        self._channel.send(("drain",))

    def kill(self) -> None:
        """End the worker at once."""
        with suppress(ProcessLookupError):
            self._process.kill()

    async def ended(self) -> int:
        """Wait for the worker's exit code; after a signal, the negative number of the signal."""
        return await self._process.wait()

    def close(self) -> None:
        """Close the channel and the pipe."""
        self._channel.close()
        self.pipe.close()


def describe_exit(code: int) -> str:
    """How a process ended, in words: `was killed by SIGKILL`."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
