"""What an instance remembers of a cassette in PostgreSQL while another instance records into it."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial

import pytest

from tapeway.core.cassette.plan import Incoming
from tapeway.core.model.control import Mode, with_take
from tapeway.core.model.messages import Headers, Request
from tapeway.engine.broker import Broker
from tapeway.engine.recording.selection import Policy
from tapeway.stores.postgres.store import PostgresStore
from tests.stores.postgres.statements import Statements
from tests.support.fakes.broker import HEAD, ROUTES, ServedAnswer, serve
from tests.support.fakes.live_service import FakeResponder


class _Instances:
    """Two instances on one database, and what they asked of the service."""

    def __init__(self, brokers: list[Broker], responder: FakeResponder) -> None:
        self.brokers = brokers
        self.responder = responder

    async def ask(
        self, at: int, path: str, *, method: str = "POST", key: str = "", body: bytes = b"{}"
    ) -> ServedAnswer:
        fields: Headers = ((b"authorization", b"Bearer " + key.encode()),) if key else ()
        request = Request("openai", method, path, fields, body, base="https://up")
        await self.brokers[at].confirm()
        return await serve(self.brokers[at], "default", Incoming(request))

    async def begin_take(self) -> None:
        await self.brokers[0].source.steer(lambda now: with_take(now, "default"))


@pytest.fixture
def mode() -> Mode:
    return "auto"


@pytest.fixture
async def two(postgres_url: str, mode: Mode) -> AsyncIterator[_Instances]:
    responder = FakeResponder()
    async with AsyncExitStack() as stack:
        brokers = [
            await stack.enter_async_context(
                Broker(
                    PostgresStore(postgres_url),
                    responder,
                    mode=mode,
                    cassette="default",
                    routes=ROUTES,
                    policy=Policy(repeats=None),
                    new_head=partial(lambda: HEAD),
                )
            )
            for _ in range(2)
        ]
        yield _Instances(brokers, responder)


async def test_a_recording_elsewhere_costs_a_hit_no_look_up(
    two: _Instances, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await two.ask(0, "/v1/chat")
    await two.ask(1, "/v1/chat")
    assert (await two.ask(1, "/v1/chat")).body == first.body
    statements = Statements(monkeypatch)
    for at in range(3):
        await two.ask(0, f"/v1/other/{at}")
        statements.executed.clear()
        assert (await two.ask(1, "/v1/chat")).outcome == "replayed"
        assert statements.count("take, document") == 0


async def test_a_write_recorded_elsewhere_ends_a_remembered_read(two: _Instances) -> None:
    first, _ = [await two.ask(0, path, method="GET", body=b"") for path in ("/v1/files", "/v1/x")]
    await two.begin_take()
    assert (await two.ask(1, "/v1/files", method="GET", body=b"")).body == first.body
    await two.ask(0, "/v1/files")

    assert (await two.ask(1, "/v1/x", method="GET", body=b"")).outcome == "recorded"
