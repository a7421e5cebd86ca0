"""Bodies too large for memory are served over sockets like small ones."""

import asyncio
import gzip
import hashlib
import os
import random
from collections.abc import Callable, Iterator

import pytest

from tapeway.body_files import body_pieces
from tapeway.core.model.messages import LARGE_BODY, BodyFile
from tapeway.core.streams.pacing import Pace
from tapeway.engine.recording.selection import Policy
from tapeway.server import delivery
from tapeway.server.proxy import ProxyOptions
from tests.server.in_process_proxy import MIB, RunningProxy, running_proxy
from tests.support.reuse import REUSED
from tests.support.socket_upstream import OK, Peer

KEY = b"sk-proj-" + b"Ab3dEf9hIj2lMn8p" * 3
GZIP = b"Accept-Encoding: gzip"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def bodies_of(seed: int, *sizes: int) -> list[bytes]:
    chance = random.Random(seed)
    return [chance.randbytes(size) for size in sizes]


def chunked(*pieces: bytes, head: bytes = CHUNKED) -> bytes:
    return head + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def sized(body: bytes, *fields: bytes) -> bytes:
    lines = [b"HTTP/1.1 200 OK", *fields, b"Content-Length: %d" % len(body)]
    return b"\r\n".join([*lines, b"", body])


async def files_of(proxy: RunningProxy) -> tuple[list[int], list[int]]:
    """The sizes of the large bodies in the store, of requests and of answers."""
    recorded = await proxy.recorded()
    asked = [exchange.request.file.size for exchange in recorded if exchange.request.file]
    return asked, [exchange.response.file.size for exchange in recorded if exchange.response.file]


@pytest.mark.parametrize("delivery", ["buffer", "stream"])
async def test_the_chunks_of_a_large_answer_come_back_as_they_were(delivery: str) -> None:
    pieces = bodies_of(1, 700_000, 3, 300_000, 1, 262_144, 999_999, 65_536)
    options = ProxyOptions(max_body=8 * MIB, body_idle_s=10, delivery=delivery)  # type: ignore[arg-type]
    async with (
        Peer(chunked(*pieces)) as peer,
        running_proxy(peer.url, mode="auto", rules=REUSED, options=options) as proxy,
    ):
        live, replayed = await proxy.ask(), await proxy.ask()

        assert [live.outcome, replayed.outcome] == [b"recorded", b"replayed"]
        assert live.body == replayed.body == b"".join(pieces)
        assert [len(chunk) for chunk in replayed.chunks] == [len(piece) for piece in pieces]
        assert await files_of(proxy) == ([], [len(live.body)])
        assert len(peer.requests) == 1


async def test_one_giant_chunk_is_not_held_in_memory_but_cut() -> None:
    [body] = bodies_of(2, 5 * MIB)
    async with (
        Peer(chunked(body)) as peer,
        running_proxy(peer.url, mode="auto", rules=REUSED) as proxy,
    ):
        live, replayed = await proxy.ask(), await proxy.ask()

    assert live.body == replayed.body == body
    assert max(len(chunk) for chunk in replayed.chunks) < 2 * LARGE_BODY


@pytest.mark.parametrize("over", [0, 1])
async def test_bodies_around_the_size_limit_of_memory_are_served_alike(over: int) -> None:
    [body] = bodies_of(3, LARGE_BODY + over)
    async with (
        Peer(sized(body)) as peer,
        running_proxy(peer.url, mode="auto", rules=REUSED) as proxy,
    ):
        live, replayed = await proxy.ask(), await proxy.ask()

        assert live.body == replayed.body == body
        assert replayed.value(b"Content-Length") == b"%d" % len(body)
        assert await files_of(proxy) == ([], [len(body)] * over)


async def test_a_client_of_http_1_0_gets_a_length() -> None:
    pieces = bodies_of(4, MIB, MIB)
    async with (
        Peer(chunked(*pieces)) as peer,
        running_proxy(peer.url, mode="auto", rules=REUSED) as proxy,
    ):
        await proxy.ask()
        replayed = await proxy.send(b"GET / HTTP/1.0\r\nHost: %b\r\n\r\n" % proxy.host)

    assert replayed.outcome == b"replayed"
    assert replayed.value(b"Content-Length") == b"%d" % (2 * MIB)
    assert replayed.body == b"".join(pieces)


async def test_a_connection_serves_more_requests_after_a_large_answer() -> None:
    [body] = bodies_of(5, 3 * MIB)
    async with (
        Peer(sized(body)) as peer,
        running_proxy(peer.url, mode="auto", rules=REUSED) as proxy,
        proxy.connect() as client,
    ):
        for outcome in (b"recorded", b"replayed", b"replayed"):
            answer = await client.ask(proxy.request())
            assert (answer.outcome, answer.body == body) == (outcome, True)


async def test_an_answer_of_any_type_is_large_by_its_size_alone() -> None:
    event = b"data: %b\n\n" % (b"x" * 1000)
    body = event * (LARGE_BODY // len(event) + 1)
    async with (
        Peer(sized(body, b"Content-Type: text/event-stream")) as peer,
        running_proxy(peer.url, mode="auto", rules=REUSED) as proxy,
    ):
        assert (await proxy.ask()).body == (await proxy.ask()).body == body


# Uploads.

HEAD = b"POST /v1/files"
OCTETS = b"Content-Type: application/octet-stream"


async def test_a_large_upload_reaches_the_upstream_and_is_found_again() -> None:
    [body] = bodies_of(6, 3 * MIB)
    async with Peer() as peer, running_proxy(peer.url, mode="auto", rules=REUSED) as proxy:
        live = await proxy.ask(HEAD, OCTETS, body=body)
        replayed = await proxy.ask(HEAD, OCTETS, body=body)
        other = await proxy.ask(HEAD, OCTETS, body=body[:-1] + b"!")

        assert [live.outcome, replayed.outcome, other.outcome] == [
            *(b"recorded", b"replayed", b"recorded"),
        ]
        assert peer.requests[0].partition(b"\r\n\r\n")[2] == body
        assert b"Content-Length: %d" % len(body) in peer.requests[0]
        assert await files_of(proxy) == ([len(body)] * 2, [])


async def test_an_upload_in_chunks_is_the_same_as_one_with_a_length() -> None:
    [body] = bodies_of(7, 2 * MIB)
    fields = b"\r\n".join([HEAD + b" HTTP/1.1", b"Host: x", OCTETS, b"Transfer-Encoding: chunked"])
    async with Peer() as peer, running_proxy(peer.url, mode="auto", rules=REUSED) as proxy:
        await proxy.ask(HEAD, OCTETS, body=body)
        again = await proxy.send(
            chunked(body[:1000], body[1000:MIB], body[MIB:], head=fields + b"\r\n\r\n")
        )

    assert again.outcome == b"replayed"


def form(boundary: bytes, audio: bytes, model: bytes = b"whisper-1") -> bytes:
    return (
        b'--%b\r\nContent-Disposition: form-data; name="model"\r\n\r\n%b\r\n'
        b'--%b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n'
        b"Content-Type: audio/wav\r\n\r\n%b\r\n--%b--\r\n"
        % (boundary, model, boundary, audio, boundary)
    )


def typed(boundary: bytes) -> bytes:
    return b"Content-Type: multipart/form-data; boundary=" + boundary


async def test_a_large_form_matches_whatever_its_boundary_and_tells_its_parts_apart() -> None:
    [audio] = bodies_of(8, 2 * MIB)
    async with Peer() as peer, running_proxy(peer.url, mode="auto", rules=REUSED) as proxy:
        answers = [
            await proxy.ask(HEAD, typed(b"one"), body=form(b"one", audio)),
            await proxy.ask(HEAD, typed(b"two"), body=form(b"two", audio)),
            await proxy.ask(HEAD, typed(b"two"), body=form(b"two", audio, b"whisper-2")),
            await proxy.ask(HEAD, typed(b"two"), body=form(b"two", audio + b"!")),
        ]
        recorded = await proxy.recorded()

    assert [answer.outcome for answer in answers] == [
        *(b"recorded", b"replayed", b"recorded", b"recorded"),
    ]
    assert recorded[0].request.file is not None
    assert [part.name for part in recorded[0].request.file.parts or ()] == ["model", "file"]


async def test_a_large_json_request_still_matches_by_value() -> None:
    text = b"x" * (3 * MIB)
    async with Peer() as peer, running_proxy(peer.url, mode="auto", rules=REUSED) as proxy:
        kind = b"Content-Type: application/json"
        await proxy.ask(HEAD, kind, body=b'{"a": "%b", "b": 1.0}' % text)
        again = await proxy.ask(HEAD, kind, body=b'{"b":1,"a":"%b"}' % text)

    assert again.outcome == b"replayed"


# Limits.


@pytest.mark.parametrize("framed", ["length", "chunked"])
async def test_an_answer_beyond_the_limit_is_refused_and_nothing_is_stored(framed: str) -> None:
    [body] = bodies_of(9, 3 * MIB)
    said = sized(body) if framed == "length" else chunked(body[:MIB], body[MIB:])
    policy = Policy(max_body=2 * MIB)
    async with (
        Peer(said) as peer,
        running_proxy(peer.url, mode="auto", rules=REUSED, policy=policy) as proxy,
    ):
        answer = await proxy.ask()

        assert answer.status == 502
        assert b"upstream_too_large" in answer.body
        assert await proxy.recorded() == []


@pytest.mark.parametrize("framed", ["length", "chunked"])
async def test_an_upload_beyond_the_limit_is_refused_and_not_sent_on(framed: str) -> None:
    [body] = bodies_of(10, 3 * MIB)
    options = ProxyOptions(max_body=2 * MIB, body_idle_s=10)
    async with (
        Peer() as peer,
        running_proxy(peer.url, mode="auto", rules=REUSED, options=options) as proxy,
    ):
        if framed == "length":
            sent = proxy.request(HEAD, OCTETS, body=body)
        else:
            head = proxy.request(HEAD, OCTETS, b"Transfer-Encoding: chunked")
            sent = chunked(body[:MIB], body[MIB:], head=head)
        async with proxy.connect() as client:
            [answer] = await client.converse(sent, answers=1)

        assert answer.status == 413
        assert b"request_too_large" in answer.body
        assert peer.requests == []
        assert await proxy.recorded() == []


# Secrets and codings.


@pytest.mark.parametrize("cut", [0, 1, 9, len(KEY) - 1, len(KEY)])
async def test_a_secret_in_a_large_answer_is_not_stored_wherever_it_is_cut(cut: int) -> None:
    [before, after] = bodies_of(11, MIB + 77, MIB)
    pieces = [before[:MIB], before[MIB:] + KEY[:cut], KEY[cut:] + after]
    async with (
        Peer(chunked(*[piece for piece in pieces if piece])) as peer,
        running_proxy(peer.url, mode="auto", rules=REUSED) as proxy,
    ):
        asked = (b"GET /", b"Authorization: Bearer " + KEY)
        live, replayed = await proxy.ask(*asked), await proxy.ask(*asked)

    assert live.body == before + KEY + after
    assert KEY not in replayed.body
    assert replayed.body.startswith(before + b"REDACTED.")
    assert replayed.body.endswith(after)
    assert len(replayed.chunks) == len(live.chunks) == 3
    assert replayed.chunks[0] == pieces[0]


async def test_a_secret_in_a_large_upload_is_sent_on_and_not_stored() -> None:
    [before, after] = bodies_of(12, MIB, MIB)
    asked = (HEAD, OCTETS, b"Authorization: Bearer " + KEY)
    async with Peer() as peer, running_proxy(peer.url, mode="auto", rules=REUSED) as proxy:
        await proxy.ask(*asked, body=before + KEY + after)
        again = await proxy.ask(*asked, body=before + KEY + after)
        recorded = await proxy.recorded()

    assert again.outcome == b"replayed"
    assert KEY in peer.requests[0].partition(b"\r\n\r\n")[2]
    assert recorded[0].request.file is not None
    stored = hashlib.sha256(before + KEY + after).hexdigest()
    assert recorded[0].request.file.digest != stored


async def test_a_large_coded_answer_is_stored_plain_and_passed_on_as_it_came() -> None:
    text = b"".join(
        b'{"line": %d, "text": "%b"}\n' % (at, os.urandom(40).hex().encode())
        for at in range(40_000)
    )
    coded = gzip.compress(text, 1)
    thirds = [coded[: MIB // 2], coded[MIB // 2 : MIB + 5], coded[MIB + 5 :]]
    head = CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
    async with (
        Peer(chunked(*thirds, head=head)) as peer,
        running_proxy(peer.url, mode="auto", rules=REUSED) as proxy,
    ):
        live, replayed = [await proxy.ask(b"GET /", GZIP) for _ in range(2)]

    assert live.body == coded
    assert live.value(b"Content-Encoding") == b"gzip"
    assert replayed.body == text
    assert replayed.value(b"Content-Encoding") == b""
    assert len(replayed.chunks) == 3


async def test_a_large_answer_that_is_not_in_its_coding_is_stored_as_it_came() -> None:
    [noise] = bodies_of(13, 2 * MIB)
    broken = gzip.compress(noise)[:-9]
    async with (
        Peer(sized(broken, b"Content-Encoding: gzip")) as peer,
        running_proxy(peer.url, mode="auto", rules=REUSED) as proxy,
    ):
        live, replayed = await proxy.ask(), await proxy.ask()

    assert live.body == replayed.body == broken
    assert replayed.value(b"Content-Encoding") == b"gzip"


async def test_a_small_answer_that_is_large_without_its_coding_lies_in_a_file() -> None:
    text = b"".join(b"%d\n" % at for at in range(400_000))
    async with (
        Peer(sized(gzip.compress(text), b"Content-Encoding: gzip")) as peer,
        running_proxy(peer.url, mode="auto", rules=REUSED) as proxy,
    ):
        await proxy.ask(b"GET /", GZIP)

        assert (await proxy.ask(b"GET /", GZIP)).body == text
        assert await files_of(proxy) == ([], [len(text)])


# Pace and failures.


async def test_a_large_answer_at_its_pace_keeps_its_chunks() -> None:
    pieces = bodies_of(17, 700_000, 3, 300_000, 262_144, 999_999)
    options = ProxyOptions(max_body=8 * MIB, body_idle_s=10, pace=Pace(0.01))
    async with (
        Peer(chunked(*pieces)) as peer,
        running_proxy(peer.url, mode="auto", rules=REUSED, options=options) as proxy,
    ):
        await proxy.ask()
        replayed = await proxy.ask()

    assert replayed.outcome == b"replayed"
    assert [len(chunk) for chunk in replayed.chunks] == [len(piece) for piece in pieces]
    assert replayed.body == b"".join(pieces)


@pytest.mark.parametrize("framed", ["length", "chunked"])
async def test_a_large_answer_that_was_cut_is_replayed_up_to_the_same_byte(framed: str) -> None:
    [body] = bodies_of(18, 3 * MIB)
    said = sized(body) if framed == "length" else chunked(body[:MIB], body[MIB:])
    policy = Policy(record_failures=True)
    async with (
        Peer(said[: -MIB // 2], "close") as peer,
        running_proxy(peer.url, mode="auto", rules=REUSED, policy=policy) as proxy,
    ):
        assert (await proxy.ask()).status == 502
        [recorded] = await proxy.recorded()
        replayed = await proxy.ask()

    came = recorded.response.file
    assert recorded.failure is not None
    assert came is not None
    assert came.size > 2 * MIB
    assert not replayed.complete
    assert body.startswith(replayed.body)
    assert len(replayed.body) == came.size


# Company.


async def test_all_who_ask_the_same_at_once_get_the_large_answer_of_one_call() -> None:
    [body] = bodies_of(14, 3 * MIB)
    gate = asyncio.Event()
    said = sized(body)
    async with Peer(said[:100], gate, said[100:]) as peer:
        async with (
            running_proxy(peer.url, mode="auto", rules=REUSED) as proxy,
            asyncio.TaskGroup() as tasks,
        ):
            asking = [tasks.create_task(proxy.ask()) for _ in range(4)]
            await peer.asked.wait()
            gate.set()
        answers = [task.result() for task in asking]

    assert [answer.body == body for answer in answers] == [True] * 4
    assert sorted(answer.outcome for answer in answers) == [b"recorded", *[b"replayed"] * 3]
    assert len(peer.requests) == 1


async def test_a_client_that_leaves_stops_neither_the_recording_nor_the_next_one() -> None:
    [body] = bodies_of(15, 6 * MIB)
    gate = asyncio.Event()
    said = sized(body)
    async with (
        Peer(said[:100], gate, said[100:]) as peer,
        running_proxy(peer.url, mode="auto", rules=REUSED) as proxy,
    ):
        async with proxy.connect() as client:
            await client.send(proxy.request())
            await peer.asked.wait()
        gate.set()
        answers = [await proxy.ask() for _ in range(2)]
        async with proxy.connect() as client:
            # It reads a little of a replay, too.
            await client.send(proxy.request())
            await client.until(b"\r\n\r\n")
        answers.append(await proxy.ask())

    assert [answer.body == body for answer in answers] == [True] * 3
    assert len(peer.requests) == 1


async def test_passthrough_sends_a_large_upload_on_and_stores_nothing() -> None:
    [body] = bodies_of(16, 3 * MIB)
    async with Peer(OK) as peer, running_proxy(peer.url, mode="passthrough") as proxy:
        answer = await proxy.ask(HEAD, OCTETS, body=body)

        assert answer.outcome == b"live"
        assert peer.requests[0].endswith(body)
        assert await proxy.recorded() == []


@pytest.mark.parametrize(
    ("others", "size"), [(0, 512 * 1024), (15, 512 * 1024), (63, 128 * 1024), (9999, 16 * 1024)]
)
async def test_the_more_large_answers_are_sent_at_once_the_less_each_holds_in_memory(
    others: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    [body] = bodies_of(17, 3 * MIB)
    read: list[int] = []

    def noted(file: BodyFile, piece_size: Callable[[], int]) -> Iterator[bytes]:
        for piece in body_pieces(file, piece_size):
            read.append(len(piece))
            yield piece

    monkeypatch.setattr(delivery, "body_pieces", noted)
    monkeypatch.setattr(delivery.LargeAnswer, "under_way", others)
    async with (
        Peer(sized(body)) as peer,
        running_proxy(peer.url, mode="auto", rules=REUSED) as proxy,
    ):
        await proxy.ask()
        read.clear()

        assert (await proxy.ask()).body == body

    assert max(read) == size
    assert delivery.LargeAnswer.under_way == others
