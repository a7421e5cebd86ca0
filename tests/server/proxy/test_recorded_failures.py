"""`--record-failures`: what went wrong is recorded, and goes wrong again when it is replayed."""

import asyncio
import gzip

import pytest

from tapeway.core.model.control import Mode
from tapeway.core.model.messages import FailureKind
from tapeway.engine.recording.selection import Policy
from tapeway.server.proxy import ProxyOptions
from tapeway.upstream.client import Limits
from tests.server.in_process_proxy import RunningProxy, running_proxy, written_and_read
from tests.server.streaming import LAST, chunk, head, routes
from tests.support.raw_client import Answer
from tests.support.socket_upstream import OK, Peer, Step
from tests.support.streams import CHAT, SSE

LENGTH = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 10\r\n\r\n"
CLOSED = b"HTTP/1.1 200 OK\r\n\r\n"
KEEPING = Policy(record_failures=True)
STREAM = ProxyOptions(max_body=2**23, body_idle_s=10, delivery="stream")
ASK = b"POST /openai/v1/chat/completions"
BODY = b'{"stream":true}'

Failed = tuple[tuple[Step, ...], FailureKind, list[bytes]]

MIDWAY: dict[str, Failed] = {
    "a stream cut between chunks": (
        *((head(SSE), chunk(CHAT), chunk(b"data: {"), "close"), "cut"),
        [CHAT, b"data: {"],
    ),
    "a stream reset": ((head(SSE), chunk(CHAT), "reset"), "cut", [CHAT]),
    "half a chunk": ((head(SSE), chunk(CHAT), b"5\r\nhe", "close"), "cut", [CHAT, b"he"]),
    "a head alone": ((head(SSE), "close"), "cut", []),
    "a short body": ((LENGTH, b"hello", "close"), "cut", [b"hello"]),
    "no body": ((LENGTH, "reset"), "cut", [b""]),
    "a body without a length, reset": ((CLOSED, b"hello", "reset"), "cut", [b"hello"]),
    "silence in the middle": ((head(SSE), chunk(CHAT), "stall"), "timeout", [CHAT]),
}
AT_ONCE: dict[str, Failed] = {
    "nothing at all": (("close",), "reset", []),
    "a reset": (("reset",), "reset", []),
    "silence": (("stall",), "timeout", []),
}


def limits_of(kind: FailureKind) -> Limits:
    """Patience of a moment where the upstream falls silent, and else more than a test takes."""
    return Limits(connect_s=60, idle_s=0.3 if kind == "timeout" else 60)


async def outcome_of(proxy: RunningProxy) -> Answer | None:
    """What a client sees; None where the connection ends without any answer."""
    try:
        return await proxy.ask(ASK, body=BODY)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


@pytest.mark.parametrize("mode", ["record", "auto"])
@pytest.mark.parametrize("name", [*MIDWAY, *AT_ONCE])
async def test_a_failure_is_recorded_with_the_bytes_received(name: str, mode: Mode) -> None:
    steps, kind, pieces = (MIDWAY | AT_ONCE)[name]
    async with (
        Peer(*steps) as peer,
        running_proxy(
            mode=mode, routes=routes(peer.url), policy=KEEPING, limits=limits_of(kind)
        ) as proxy,
    ):
        live = await outcome_of(proxy)
        [recorded] = await proxy.recorded()

    # Live, it is the same error as where failures are not recorded.
    assert live is not None
    assert (live.status, live.outcome) == (504 if kind == "timeout" else 502, b"error")
    assert recorded.failure is not None
    assert recorded.failure.kind == kind
    assert recorded.response.pieces() == [piece for piece in pieces if piece]
    assert recorded.response.status == (200 if name in MIDWAY else 0)


@pytest.mark.parametrize("name", MIDWAY)
async def test_a_stream_that_fails_is_passed_on_up_to_there(name: str) -> None:
    steps, kind, pieces = MIDWAY[name]
    async with (
        Peer(*steps) as peer,
        running_proxy(
            mode="auto",
            routes=routes(peer.url),
            policy=KEEPING,
            options=STREAM,
            limits=limits_of(kind),
        ) as proxy,
    ):
        live, again = await outcome_of(proxy), await outcome_of(proxy)

        assert live is not None
        assert again is not None
        assert (live.complete, again.complete) == (False, False)
        assert (live.outcome, again.outcome) == (b"recorded", b"replayed")
        assert live.values(b"tapeway-interaction") == again.values(b"tapeway-interaction")
        assert live.body == b"".join(pieces)
        assert again.body == b"".join(pieces)
        assert len(peer.requests) == 1
        [recorded] = await proxy.recorded()
        assert recorded.failure is not None
        assert recorded.failure.kind == kind


@pytest.mark.parametrize("version", [b"HTTP/1.1", b"HTTP/1.0"])
@pytest.mark.parametrize("name", MIDWAY)
async def test_a_replay_breaks_off_at_the_same_byte(name: str, version: bytes) -> None:
    steps, kind, pieces = MIDWAY[name]
    async with (
        Peer(*steps) as peer,
        running_proxy(
            mode="record", routes=routes(peer.url), policy=KEEPING, limits=limits_of(kind)
        ) as proxy,
    ):
        await outcome_of(proxy)
        store = await written_and_read(proxy.store)

    async with running_proxy(mode="replay", routes=routes("http://never"), store=store) as proxy:
        sent = proxy.request(ASK, body=BODY).replace(b"HTTP/1.1", version)
        if version == b"HTTP/1.0":
            async with proxy.connect() as app:
                await app.send(sent)
                await app.until(b"\r\n\r\n")
                with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                    await app.until(b"".join(pieces) + b"more")
            return
        answer = await proxy.send(sent)

        assert (answer.status, answer.outcome, answer.complete) == (200, b"replayed", False)
        assert [piece for piece in answer.chunks if piece] == [piece for piece in pieces if piece]
        [entry] = proxy.journal
        assert (entry.outcome, entry.interaction) == ("replayed", 0)
        assert entry.message
        assert proxy.journal.counts["replayed"] == 1


async def test_a_short_body_announces_again_what_it_had_announced() -> None:
    async with (
        Peer(LENGTH, b"hello", "close") as peer,
        running_proxy(mode="auto", routes=routes(peer.url), policy=KEEPING) as proxy,
    ):
        await outcome_of(proxy)
        answer = await proxy.ask(ASK, body=BODY)

        assert answer.value(b"content-length") == b"10"


@pytest.mark.parametrize("through_the_file", [False, True])
@pytest.mark.parametrize("name", AT_ONCE)
async def test_a_failure_before_any_answer_is_replayed(name: str, through_the_file: bool) -> None:
    steps, kind, _ = AT_ONCE[name]
    async with (
        Peer(*steps) as peer,
        running_proxy(
            mode="record", routes=routes(peer.url), policy=KEEPING, limits=limits_of(kind)
        ) as proxy,
    ):
        await outcome_of(proxy)
        store = await written_and_read(proxy.store) if through_the_file else proxy.store

    async with running_proxy(mode="replay", routes=routes("http://never"), store=store) as proxy:
        answer = await outcome_of(proxy)

        if kind == "reset":
            assert answer is None
        else:
            assert answer is not None
            assert (answer.status, answer.outcome) == (504, b"replayed")
            assert answer.value(b"tapeway-interaction") == b"0"
            assert b'"code":"upstream_timeout"' in answer.body
        assert proxy.journal.counts["replayed"] == 1


async def test_failures_and_answers_take_turns() -> None:
    async with (
        Peer(OK) as peer,
        running_proxy(mode="record", routes=routes(peer.url), policy=KEEPING) as proxy,
    ):
        peer.then("reset").then(OK).then(head(SSE), chunk(CHAT), "close")
        for _ in range(3):
            await outcome_of(proxy)
        await proxy.broker.set_mode("replay")
        answers = [await outcome_of(proxy) for _ in range(3)]

        assert answers[0] is None
        assert [answer and answer.body for answer in answers[1:]] == [b"ok", CHAT]
        assert [answer and answer.complete for answer in answers[1:]] == [True, False]


@pytest.mark.parametrize(
    "steps",
    [
        (LENGTH.replace(b"200 OK", b"500 Oops"), b"hello", "close"),
        (b"gibberish\r\n\r\n", "close"),
    ],
    ids=["a cut answer that is no success", "no HTTP"],
)
async def test_in_auto_no_other_failure_is_kept(steps: tuple[Step, ...]) -> None:
    async with (
        Peer(*steps) as peer,
        running_proxy(mode="auto", routes=routes(peer.url), policy=KEEPING) as proxy,
    ):
        await outcome_of(proxy)

        assert await proxy.recorded() == []


async def test_an_upstream_that_cannot_be_reached_is_not_recorded() -> None:
    async with Peer() as peer:
        nobody = peer.url
    async with running_proxy(mode="record", routes=routes(nobody), policy=KEEPING) as proxy:
        answer = await outcome_of(proxy)

        assert answer is not None
        assert (answer.status, await proxy.recorded()) == (502, [])


async def test_without_the_option_nothing_that_failed_is_kept() -> None:
    for steps, kind, _ in [*MIDWAY.values(), *AT_ONCE.values()]:
        async with (
            Peer(*steps) as peer,
            running_proxy(mode="record", routes=routes(peer.url), limits=limits_of(kind)) as proxy,
        ):
            await outcome_of(proxy)
            assert await proxy.recorded() == []


async def test_a_stream_cut_in_its_coding_is_kept_as_far_as_it_can_be_read() -> None:
    packed = gzip.compress(CHAT * 3)
    async with (
        Peer(head(SSE, b"Content-Encoding: gzip"), chunk(packed[:-4]), "close") as peer,
        running_proxy(mode="auto", routes=routes(peer.url), policy=KEEPING) as proxy,
    ):
        offering = b"Accept-Encoding: gzip"
        await proxy.ask(ASK, offering, body=BODY)
        again = await proxy.ask(ASK, offering, body=BODY)

        assert (again.complete, LAST in again.body) == (False, False)
        assert (CHAT * 3).startswith(again.body)
        assert again.body
