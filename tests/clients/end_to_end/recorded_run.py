"""One recording of real clients, and its replay with the upstream gone."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from tapeway.testing import Received, ThreadedStandIn
from tests.clients.end_to_end.process import Tapeway
from tests.clients.programs.raw_calls import SECRET_FIELDS
from tests.clients.programs.raw_socket import Wire, exchange
from tests.clients.programs.target import Run, Target
from tests.support.canary import canary, sightings
from tests.support.stand_in_extras import WiderStandIn

# A client's own connection, which raw replay makes anew.
UNSENT = {"host", "content-length", "transfer-encoding", "connection"}


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one run of a client returned when live, and what reached the upstream meanwhile."""

    run: Run
    target: Target
    outcome: list[object] | Exception
    received: list[Received]
    own: Mapping[str, str] = field(default_factory=dict)
    """The proxy's own credentials, with which it signs requests."""

    @property
    def canaries(self) -> dict[str, str]:
        """Every secret of this run: the client's two, and what its answers' fields held."""
        given = {
            f"answer's {name} {number}": value
            for number, (name, value) in enumerate(_secret_fields(self.received))
        }
        return {
            **given,
            **{name: value for name, value in self.own.items() if name != "AWS_ACCESS_KEY_ID"},
            "the key": self.target.key,
            "the client's cookie": self.target.cookie,
        }

    def withheld(self) -> list[str]:
        """The targets of those requests that came to the upstream without the secrets they need.

        A request that is signed anew comes with the proxy's session in place of the client's.
        """
        key = self.own.get("AWS_SESSION_TOKEN", self.target.key)
        return [
            request.target
            for request in self.received
            if self.target.cookie.encode() not in request.raw
            or not sightings({"the key": key}, {"request": request.raw})
        ]


def _secret_fields(received: list[Received]) -> Iterator[tuple[str, str]]:
    for request in received:
        for name, value in request.answer.headers:
            if name == "set-cookie":
                yield name, value.partition(";")[0].partition("=")[2]
            elif name in SECRET_FIELDS:
                yield name, value


@dataclass(slots=True)
class RecordedRun:
    """A replaying proxy whose upstream has been stopped."""

    proxy: Tapeway
    recorded: Mapping[str, Recorded]
    route: str
    pages: dict[str, bytes] = field(default_factory=dict)

    def replay(self, name: str) -> list[object]:
        """What the same run returns now."""
        recorded = self.recorded[name]
        target = Target(
            _base(self.proxy, name, self.route), recorded.target.key, recorded.target.cookie
        )
        return _placeless(asyncio.run(recorded.run(target)), target)

    def replay_bytes(self, name: str, request: Received) -> Wire:
        """The answer to one request that the upstream once received."""
        target = urlsplit(_base(self.proxy, name, self.route)).path + request.target
        fields = tuple(f for f in request.headers if f[0].lower() not in UNSENT)
        return asyncio.run(exchange(self.proxy.proxy, request.method, target, fields, request.body))

    def found(self) -> list[str]:
        """Where the secrets of any run are seen in anything the proxies let out."""
        pages = self.pages | self.proxy.let_out()
        for name in self.recorded:
            pages |= self.proxy.told_of(name)
        canaries = {
            f"{run}: {name}": value
            for run, recorded in self.recorded.items()
            for name, value in recorded.canaries.items()
        }
        return sightings(canaries, pages)


@dataclass(frozen=True, slots=True)
class Searched:
    """One run of a take, which is searched for the secrets of all its runs when it ends."""

    take: RecordedRun
    name: str

    def found(self) -> list[str]:
        """Nothing yet. Its secrets did reach the upstream."""
        recorded = self.take.recorded[self.name]
        assert recorded.received
        assert recorded.withheld() == []
        return []


def _placeless(outcome: list[object], target: Target) -> list[object]:
    """An outcome whose addresses of the proxy, which has another port each time, are one word."""

    def replaced(value: object) -> object:
        if isinstance(value, str):
            return value.replace(target.url, "PROXY")
        if isinstance(value, dict):
            return {name: replaced(member) for name, member in value.items()}
        return [replaced(item) for item in value] if type(value) is list else value

    return [replaced(part) for part in outcome]


def _base(proxy: Tapeway, cassette: str, route: str) -> str:
    return f"{proxy.proxy}/@{cassette}/{route}"


@contextmanager
def taken(
    folder: Path,
    route: str,
    runs: Mapping[str, Run],
    *more: str,
    codings: Sequence[str] = (),
) -> Iterator[RecordedRun]:
    """Record every run, each in a cassette of its own; stop the upstream; replay.

    At the end nothing that the proxies let out may hold a secret of any run: one search for all,
    because taking each page apart is what it costs.

    `more` are further options of both processes.
    """
    with ThreadedStandIn(WiderStandIn(require_credential=True, codings=codings)) as upstream:
        options = ("--route", f"{route}={upstream.url}", *more)
        own = _aws_credentials() if route == "bedrock" else {}
        with Tapeway(folder, "--mode", "record", *options, name="recording", **own) as recording:
            recorded = {
                name: _record(
                    run, Target(_base(recording, name, route), canary(), canary()), upstream, own
                )
                for name, run in runs.items()
            }
            pages = recording.let_out()
            for name in runs:
                pages |= recording.told_of(name)
        upstream.stop()
        pages |= recording.left_behind()
        with Tapeway(folder, "--mode", "replay", *options, name="replaying") as replaying:
            take = RecordedRun(
                replaying, recorded, route, {f"recording {k}": v for k, v in pages.items()}
            )
            yield take
            assert take.found() == []
            assert replaying.status()["upstream_connections"] == 0


def _aws_credentials() -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": "AKIDSYNTHETIC",
        "AWS_SECRET_ACCESS_KEY": canary(),
        "AWS_SESSION_TOKEN": canary(),
    }


def _record(
    run: Run, target: Target, upstream: ThreadedStandIn, own: Mapping[str, str]
) -> Recorded:
    before = len(upstream.requests)
    outcome: list[object] | Exception
    try:
        outcome = _placeless(asyncio.run(run(target)), target)
    except Exception as failure:
        # One client's failure is one test's failure, not all tests'.
        outcome = failure
    return Recorded(run, target, outcome, upstream.requests[before:], own)
