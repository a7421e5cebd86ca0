"""The processes that serve requests, as the admin API sees them: this one, or several workers."""

import os
from collections.abc import Sequence
from typing import Protocol

from tapeway.admin.handlers.inspection.followers import RecordingFollowers, RecordingNews
from tapeway.admin.models.inspection import RecordingUnderWay
from tapeway.engine.broker import Broker
from tapeway.errors import TapewayError
from tapeway.ports import OpenConnections


class ServingProcesses(Protocol):
    """The facts that the admin API cannot learn from its broker alone."""

    @property
    def pids(self) -> Sequence[int]:
        """The processes, the process that answers admin calls first."""

    @property
    def past_cpu_s(self) -> float:
        """CPU seconds of processes that have ended."""

    @property
    def connections(self) -> int:
        """Connections to upstreams opened since the start."""

    @property
    def open_connections(self) -> OpenConnections:
        """Those that are open now."""

    @property
    def in_flight(self) -> int:
        """Live calls in progress that will be recorded."""

    def readiness_error(self) -> TapewayError | None:
        """What keeps requests from being served, None if nothing does."""

    async def sync(self) -> None:
        """Return when every request answered until now is in the counts and in the journal."""

    async def wait_for_recordings(self, cassette: str) -> None:
        """Return when no worker has a live call in flight that records into a cassette."""

    async def recordings(self) -> list[RecordingUnderWay]:
        """The live calls that are asked or recorded now, at most 1,000."""

    async def recording_news(self, id: str, follower: str) -> RecordingNews | None:
        """The part of a recording that a follower has not seen; None for an unknown `id`."""

    def leave_recording(self, id: str, follower: str) -> None:
        """Forget a follower, who holds the recording until then."""


class SingleProcess:
    """This process alone: its broker knows everything."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._followers = RecordingFollowers(broker)

    @property
    def pids(self) -> Sequence[int]:
        return (os.getpid(),)

    @property
    def past_cpu_s(self) -> float:
        return 0.0

    @property
    def connections(self) -> int:
        return self._broker.recorder.responder.connections

    @property
    def open_connections(self) -> OpenConnections:
        return self._broker.recorder.responder.open_connections

    @property
    def in_flight(self) -> int:
        return self._broker.in_flight

    def readiness_error(self) -> TapewayError | None:
        return self._broker.store.trouble

    async def sync(self) -> None:
        return

    async def wait_for_recordings(self, cassette: str) -> None:
        return

    async def recordings(self) -> list[RecordingUnderWay]:
        return self._followers.under_way()

    async def recording_news(self, id: str, follower: str) -> RecordingNews | None:
        return await self._followers.news(id, follower)

    def leave_recording(self, id: str, follower: str) -> None:
        self._followers.leave(follower)
