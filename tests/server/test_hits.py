"""Plain hits get what the ordinary way answers, byte for byte, and nothing else is answered at once."""

import gc
import random
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from enum import Enum

import pytest
from aiohttp import hdrs

from tapeway.core.http.routing import RequestAddress, Route
from tapeway.core.matching.rules import meta_with_rules, parse_rules
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import (
    Failure,
    Framing,
    Headers,
    Request,
    Response,
    ResponseHead,
)
from tapeway.core.redaction.credentials import Secret
from tapeway.engine.journal import ServedRequest
from tapeway.engine.recording.selection import Policy
from tapeway.server import front
from tapeway.server.front import Front
from tapeway.server.plain_heads import LARGEST_BODY, LARGEST_HEAD, read_plain_head
from tapeway.server.prepared_answers import LARGEST_PREPARED, PreparedAnswers, target_of
from tapeway.stores.memory import MemoryStore
from tests.server.http.test_smuggling import BODIES, CODINGS, FRAMING, LINES, WORDS, coding
from tests.server.in_process_proxy import HitsOn, RunningProxy, running_proxy
from tests.support.fakes.broker import until
from tests.support.thoroughness import examples

HEAD = CassetteHead("2026-01-01T00:00:00+00:00", "run")
JSON: Headers = ((b"Content-Type", b"application/json"),)
PROMPT = b'{"model": "m", "prompt": "hello"}'
PLAIN = b"Host: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(PROMPT)
ASK = b"POST /ask HTTP/1.1\r\n" + PLAIN + PROMPT
BEARER = b"Authorization: Bearer sk-abcdefghijklmnopqrstuvwx\r\n"


def recording(
    index: int,
    target: str,
    body: bytes = b"",
    *,
    method: str = "GET",
    answer: bytes = b"recorded",
    status: int = 200,
    headers: Headers = (),
    chunks: int = 1,
    framing: Framing = "length",
) -> Interaction:
    size = max(1, len(answer) // chunks)
    pieces = [answer[at : at + size] for at in range(0, len(answer), size)]
    head = ResponseHead(
        status,
        "OK",
        ((b"X-Index", b"%d" % index), *headers),
        framing,
        length=len(answer) if framing == "length" else None,
    )
    return Interaction(
        index,
        Request("default", method, target, JSON if body else (), body),
        Response.of_chunks(head, [(piece, 0.0) for piece in pieces]),
    )


def recordings() -> tuple[Interaction, ...]:
    made = [
        recording(0, "/"),
        recording(1, "/next", chunks=3, framing="chunked"),
        recording(2, "/first", b"{}", method="POST"),
        recording(3, "/first", method="POST"),
        recording(4, "/ask", PROMPT, method="POST", chunks=4, framing="chunked"),
        recording(5, "/ask", PROMPT, method="POST", answer=b"the second answer"),
        recording(6, "/part", status=206),
        recording(7, "/moved", status=302, headers=((b"Location", b"/next"),)),
        recording(8, "/limited", status=429, headers=((b"Retry-After", b"7"),)),
        recording(9, "/none", status=204, answer=b""),
        recording(10, "/large", answer=b"x" * (LARGEST_PREPARED + 1)),
        recording(11, "/query?a=1&b=2"),
        recording(12, "/open", framing="close"),
        recording(13, "/empty", answer=b""),
    ]
    cut = recording(14, "/cut")
    return (*made, replace(cut, failure=Failure("cut", "cut")))


@asynccontextmanager
async def replaying(
    *interactions: Interaction,
    hits: HitsOn = "front",
    head: CassetteHead = HEAD,
    routes: dict[str, str] | None = None,
    policy: Policy | None = None,
) -> AsyncIterator[RunningProxy]:
    store = MemoryStore()
    await store.save("default", StoredCassette(head, interactions or recordings()))
    async with running_proxy(
        None if routes else "http://127.0.0.1:9",
        routes=routes,
        mode="replay",
        store=store,
        policy=policy,
        hits=hits,
    ) as proxy:
        await proxy.broker.prepare()
        yield proxy


def unexpected(answer: object) -> None:
    raise AssertionError("an answer of a cassette in memory is given at once")


def answer(proxy: RunningProxy, data: bytes) -> bytes | None:
    """What answers a segment at once, None where nothing does."""
    hits, head = proxy.proxy.hits, read_plain_head(data)
    assert hits is not None
    if head is None or head.length != len(head.rest):
        return None
    found = hits.answer(head, head.rest, unexpected, "127.0.0.1")
    assert not isinstance(found, Enum)
    return found if isinstance(found, bytes) else None


def fast(proxy: RunningProxy, data: bytes) -> bool:
    """Whether a segment is answered at once."""
    return answer(proxy, data) is not None


async def said(proxy: RunningProxy, segments: Iterable[bytes]) -> bytes:
    """Everything that a client gets which sends this and nothing more, without request ids."""
    async with proxy.connect() as client:
        try:
            await client.send(*segments)
            client.finish()
        except (OSError, RuntimeError):
            # Refused early; uvloop raises the second one.
            pass
        return re.sub(rb"tw-[0-9a-z-]+", b"ID", await client.rest())


def connections_alive() -> int:
    return sum(isinstance(live_object, Front) for live_object in gc.get_objects())


def noted(proxy: RunningProxy) -> list[ServedRequest]:
    return [entry.written()._replace(at=0, duration_ms=0) for entry in proxy.journal]


async def both_ways(rows: list[list[bytes]]) -> int:
    """Send the same to proxies that look for hits in the front, later, and not at all.

    Returns how often the front found one.
    """
    async with (
        replaying() as one,
        replaying(hits="ordinary") as other,
        replaying(hits="nowhere") as last,
    ):
        for row in rows:
            answers = [await said(running, row) for running in (one, other, last)]
            entries = [noted(running) for running in (one, other, last)]
            assert answers[0] == answers[1] == answers[2], row
            assert entries[0] == entries[1] == entries[2], row
            for running in (one, other, last):
                running.journal.clear()
        assert one.proxy.hits is not None
        assert other.proxy.hits is not None
        assert one.proxy.hits.count <= other.proxy.hits.count
        return one.proxy.hits.count


def field(line: bytes, target: bytes = b"/ask") -> bytes:
    return b"POST " + target + b" HTTP/1.1\r\n" + line + b"\r\n" + PLAIN + PROMPT


def mutated(source: random.Random) -> list[bytes]:
    """One or two good requests with some bytes changed, in one to three segments."""
    good = [ASK, b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n", field(BEARER[:-2]), field(b"X: y")]
    data = bytearray(b"".join(source.choices(good, k=source.choice((1, 1, 2)))))
    lines = [
        b"\r\n",
        b"\n",
        b"\r",
        b" ",
        b"\t",
        b":",
        b"0",
        b"Content-Length: 3\r\n",
        b"\x00",
        b"\xff",
    ]
    lines += [
        b"Connection: close\r\n",
        b"Range: bytes=0-1\r\n",
        b"Content-Encoding: gzip\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"HTTP/1.0",
        b"/",
        b"@",
        b"%",
    ]
    for _ in range(source.choice((0, 0, 1, 1, 2))):
        at = source.randrange(len(data))
        match source.randrange(4):
            case 0:
                data[at : at + 1] = b""
            case 1:
                data[at : at + 1] = bytes([data[at] ^ 0x20])
            case 2:
                data[at:at] = source.choice(lines)
            case _:
                start = bytes(data).rfind(b"\r\n", 0, at) + 2
                data[start:start] = source.choice(lines)
    cuts = sorted(source.sample(range(1, len(data)), source.choice((0, 0, 1, 2))))
    return [bytes(data[a:b]) for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


async def test_what_two_servers_could_read_differently_gets_the_same_bytes_on_both_ways() -> None:
    next_one = b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n"
    broken = [*FRAMING.values(), *CODINGS.values(), *LINES.values(), *WORDS.values()]
    broken += [coding(b" chunked") + body for body in BODIES.values()]

    await both_ways([[request] for request in broken])
    await both_ways([[request + next_one] for request in broken[::5]])
    await both_ways([[next_one, request] for request in broken[::5]])


async def test_every_known_field_gets_the_same_bytes_on_both_ways() -> None:
    names = sorted({str(value).encode() for value in vars(hdrs).values() if isinstance(value, str)})
    values = [b"1", b"close", b"keep-alive", b"text/plain", b""]
    rows = [
        [field(name + b": " + values[number % len(values)])]
        for number, name in enumerate(names * 2)
        if name.isascii() and b" " not in name
    ]

    assert await both_ways(rows) > 50


async def test_damaged_and_divided_requests_get_the_same_bytes_on_both_ways() -> None:
    source = random.Random(20261122)

    assert await both_ways([mutated(source) for _ in range(examples(250))]) > 10


@pytest.mark.parametrize(
    "line",
    [
        *(b"GET / HTTP/1.1", b"GET /next HTTP/1.1", b"HEAD /next HTTP/1.1", b"GET / HTTP/1.0"),
        *(b"GET /part HTTP/1.1", b"GET /moved HTTP/1.1", b"GET /limited HTTP/1.1"),
        *(b"GET /none HTTP/1.1", b"GET /large HTTP/1.1", b"GET /query?b=2&a=1 HTTP/1.1"),
        *(b"GET /open HTTP/1.1", b"GET /empty HTTP/1.1", b"GET /cut HTTP/1.1"),
        *(b"GET /unknown HTTP/1.1", b"GET /@default/next HTTP/1.1", b"GET /@/next HTTP/1.1"),
        *(b"GET http://a/next HTTP/1.1", b"OPTIONS * HTTP/1.1", b"PRI * HTTP/2.0"),
        *(b"PATCH / HTTP/1.1", b"get / HTTP/1.1", b"GET /%6eext HTTP/1.1", b"GET //next HTTP/1.1"),
    ],
)
async def test_every_kind_of_answer_is_the_same_on_both_ways(line: bytes) -> None:
    one = [line + b"\r\nHost: a\r\n\r\n"]

    await both_ways([one, one, [line + b"\r\nhost:a\r\nConnection: keep-alive\r\n\r\n"]])


async def test_repeats_are_answered_in_order_by_both_ways_together() -> None:
    async with replaying() as proxy, proxy.connect() as client:
        assert fast(proxy, ASK)
        second = await client.ask(field(b"Connection: close"))
        third = await client.ask(ASK) if second.value(b"Connection") != b"close" else None

    assert second.body == b"the second answer"
    assert third is None
    assert [entry.interaction for entry in proxy.journal] == [5, 4]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (ASK, True),
        (field(BEARER[:-2]), True),
        (field(b"Connection: Keep-Alive"), True),
        (field(b"X-Stainless-Retry-Count: 1"), True),
        (field(b"Tapeway-Cassette: default"), True),
        (field(b"X: 1", b"/@default/ask"), True),
        (field(b"Connection: close"), False),
        (field(b"Expect: 100-continue"), False),
        (field(b"Transfer-Encoding: chunked"), False),
        (field(b"Content-Length: 1"), False),
        (field(b"Host: b"), False),
        (field(b"X : 1"), False),
        (field(b"X:  1"), True),
        (field(b"Range: bytes=0-1"), False),
        (field(b"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), True),
        (field(b"X: \xfc"), False),
        (field(b"X: " + b"x" * LARGEST_HEAD), False),
        (ASK + ASK, False),
        (ASK[:-1], False),
        (ASK.replace(b"1.1", b"1.0"), False),
        (b"GET /moved HTTP/1.1\r\nHost: a\r\n\r\n", True),
        (b"GET /part HTTP/1.1\r\nHost: a\r\n\r\n", True),
        (b"GET /cut HTTP/1.1\r\nHost: a\r\n\r\n", False),
        (b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n", False),
        (b"GET /unknown HTTP/1.1\r\nHost: a\r\n\r\n", False),
        (b"HEAD /next HTTP/1.1\r\nHost: a\r\n\r\n", False),
    ],
)
async def test_only_a_plain_request_takes_the_front(data: bytes, expected: bool) -> None:
    async with replaying() as proxy:
        assert fast(proxy, data) is expected
        assert len(proxy.journal) == expected


async def test_a_rule_counts_at_once() -> None:
    head = replace(HEAD, meta=meta_with_rules({}, parse_rules({"ignore": ["body.prompt"]})))
    async with replaying(*recordings(), head=head) as proxy:
        assert fast(proxy, ASK.replace(b"hello", b"other"))


async def test_a_rule_that_is_added_counts_at_once() -> None:
    other = ASK.replace(b"hello", b"other")
    async with replaying(recordings()[4]) as proxy:
        before = fast(proxy, other)
        await proxy.broker.add_rules("default", parse_rules({"ignore": ["body.prompt"]}))

        assert (before, fast(proxy, other)) == (False, True)


async def test_a_header_on_which_the_answer_depends_is_seen() -> None:
    held = recordings()[4]
    one = replace(
        held,
        request=replace(held.request, headers=(*JSON, (b"X-Lang", b"de")), varied=("x-lang",)),
    )
    async with replaying(one) as proxy, proxy.connect() as client:
        assert not fast(proxy, ASK)
        assert (await client.ask(ASK)).outcome == b"miss"
        assert fast(proxy, field(b"X-Lang: de"))
        assert not fast(proxy, field(b"X-Lang: fr"))


async def test_recordings_that_headers_tell_apart_take_the_ordinary_path() -> None:
    beta = [
        replace(item, request=replace(item.request, headers=(*JSON, (b"OpenAI-Beta", value))))
        for item, value in zip(recordings()[4:6], (b"one", b"two"), strict=True)
    ]
    async with replaying(*beta) as proxy:
        assert not fast(proxy, ASK)
        async with proxy.connect() as client:
            assert (await client.ask(field(b"OpenAI-Beta: two"))).body == b"the second answer"


async def test_what_this_take_recorded_answers_its_own_caller_alone() -> None:
    async with replaying() as proxy:
        await proxy.broker.set_mode("auto")
        cassette = proxy.broker.cassette()
        assert cassette is not None
        assert fast(proxy, ASK)
        (found,) = [interaction for interaction in cassette.snapshot() if interaction.index == 4]
        assert isinstance(found, Interaction)
        cassette.take.recorded_keys.add(cassette.key_of(4))

        assert fast(proxy, ASK)
        assert not fast(proxy, ASK.replace(b"Host: a\r\n", b"Host: a\r\n" + BEARER))


@pytest.mark.parametrize("mode", ["record", "passthrough"])
async def test_nothing_is_replayed_in_a_mode_that_asks_the_upstream(mode: str) -> None:
    async with replaying() as proxy:
        await proxy.broker.set_mode("record" if mode == "record" else "passthrough")

        assert not fast(proxy, ASK)


@pytest.mark.parametrize(
    ("line", "other"),
    [
        (b"Range: bytes=0-1", b"Range: bytes=0-2"),
        (b"X-Amz-Target: DynamoDB_20120810.GetItem", b"X-Amz-Target: DynamoDB_20120810.Query"),
        (b"stripe-account: acct_1", b"stripe-account: acct_2"),
        (b"SOAPAction: one", b"SOAPAction: two"),
    ],
)
async def test_fields_of_the_match_key_tell_recordings_apart_in_the_front(
    line: bytes, other: bytes
) -> None:
    name, _, value = line.partition(b": ")
    held = recordings()[4]
    fields = (*JSON, (name, value))
    one = replace(held, request=replace(held.request, headers=fields))
    async with replaying(one) as proxy, proxy.connect() as client:
        assert fast(proxy, field(line))
        assert fast(proxy, field(name.swapcase() + b":" + value + b" "))
        assert not fast(proxy, field(line + b"\r\n" + line))
        assert not fast(proxy, field(other))
        assert not fast(proxy, ASK)
        assert (await client.ask(field(other))).outcome == b"miss"


async def test_a_hash_of_the_body_is_no_chunk_of_aws() -> None:
    async with replaying() as proxy:
        assert fast(proxy, field(b"X-Amz-Content-Sha256: UNSIGNED-PAYLOAD"))
        assert not fast(proxy, field(b"X-Amz-Content-Sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER"))


@pytest.mark.parametrize(
    "line", [b"Max-Forwards: 10", b"Cookie: a=%b" % (b"x" * LARGEST_HEAD), b"Expect: 100-continue"]
)
async def test_what_the_front_leaves_is_looked_up_as_it_would_have_been_there(line: bytes) -> None:
    async with replaying() as proxy, proxy.connect() as client:
        assert proxy.proxy.hits is not None
        plain = await client.ask(ASK, method=b"POST")
        left = [await client.ask(field(line), method=b"POST") for _ in range(2)]

        assert not fast(proxy, field(line))
        assert proxy.proxy.hits.count == 3
    assert [plain.body, *[response.body for response in left]] == [
        b"recorded",
        *[b"the second answer"] * 2,
    ]


async def test_a_hit_that_answers_what_a_service_asked_is_counted_as_such() -> None:
    body = b'{"jsonrpc": "2.0", "id": 1, "result": {}}'
    head = PLAIN.replace(b"%d" % len(PROMPT), b"%d" % len(body))
    said = b"POST /ask HTTP/1.1\r\n" + head + body
    async with replaying(recording(0, "/ask", body, method="POST")) as proxy:
        assert fast(proxy, said)
        assert fast(proxy, said)

        assert proxy.broker.requests("default", "default").answers == 2


async def test_a_slot_and_a_drain_take_the_ordinary_path() -> None:
    async with replaying() as proxy:
        await proxy.broker.set_slot("one", "default")
        slot = fast(proxy, field(b"X: 1", b"/@~one/ask"))
        before = fast(proxy, ASK)
        proxy.proxy.drain()

        assert (slot, before, fast(proxy, ASK)) == (False, True, False)


async def test_a_body_that_comes_after_its_head_is_answered_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(front, "BODY_S", 30.0)
    head, _, body = ASK.partition(b"\r\n\r\n")
    async with replaying() as proxy, proxy.connect() as client:
        assert proxy.proxy.hits is not None
        first = await client.ask(head + b"\r\n\r\n", body, method=b"POST")
        second = await client.ask(head + b"\r\n\r\n", body[:5], body[5:], method=b"POST")

        assert [first.body, second.body] == [b"recorded", b"the second answer"]
        assert proxy.proxy.hits.count == 2


async def test_a_head_whose_body_is_late_is_answered_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(front, "BODY_S", 0.0)
    head, _, body = ASK.partition(b"\r\n\r\n")
    async with replaying() as proxy, proxy.connect() as client:
        assert proxy.proxy.hits is not None
        await client.send(head + b"\r\n\r\n")
        # aiohttp has the request, whose handler waits for the body.
        await until(lambda: proxy.proxy.in_flight == 1)
        late = await client.ask(body, method=b"POST")

        assert late.body == b"recorded"


async def test_a_client_that_stops_sending_after_a_head_gets_what_it_gets_from_aiohttp() -> None:
    head = ASK.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"

    await both_ways([[head], [b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n", head]])


async def test_a_client_that_reads_nothing_is_not_written_to_without_end() -> None:
    large = recording(0, "/", answer=b"x" * LARGEST_PREPARED)
    get = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    async with replaying(large) as proxy, proxy.connect() as client:
        await until(lambda: len(proxy.connections()) == 1)
        [connection], journal = proxy.connections(), proxy.journal
        client.pause()
        sent = 0
        # Once the connection has taken enough, one more answer waits for the client.
        while not connection.writing_paused and sent < 2000:
            sent += 1
            await client.send(get)
            await until(lambda: journal.counts["replayed"] == sent)  # noqa: B023 - awaited in this turn
        client.resume()
        for _ in range(sent):
            assert len((await client.answer()).body) == LARGEST_PREPARED

    assert sent < 2000


@pytest.mark.parametrize("data", [ASK, field(b"Expect: 100-continue")], ids=["at once", "ordinary"])
async def test_a_connection_is_freed_when_it_ends_without_a_collection(data: bytes) -> None:
    async with replaying() as proxy:
        gc.collect()
        gc.disable()
        try:
            before = connections_alive()
            async with proxy.connect() as client:
                await client.ask(data)
                assert connections_alive() == before + 1
            await until(lambda: connections_alive() == before)
        finally:
            gc.enable()


async def test_a_request_within_an_unfinished_one_is_none() -> None:
    await both_ways([[b"GET /next HTTP/1.1\r\nHost: a\r\nX: ", ASK]])


async def test_a_mistake_in_the_base_url_takes_the_ordinary_path_which_names_it() -> None:
    held = recording(0, "/v1/models")
    held = replace(held, request=replace(held.request, route="openai"))
    routes = {"openai": "http://127.0.0.1:9"}
    async with replaying(held, routes=routes) as proxy:
        doubled = fast(proxy, b"GET /openai/v1/v1/models HTTP/1.1\r\nHost: a\r\n\r\n")

        assert not doubled
        assert fast(proxy, b"GET /openai/v1/models HTTP/1.1\r\nHost: a\r\n\r\n")


async def test_a_recording_without_a_route_answers_a_request_whose_route_was_guessed() -> None:
    held = recording(0, "/v1/models")
    async with replaying(held, routes={"openai": "http://127.0.0.1:9"}) as proxy:
        assert fast(proxy, b"GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n")


async def test_a_recording_of_another_route_is_not_found_by_its_body() -> None:
    held = recording(0, "/ask", PROMPT, method="POST")
    held = replace(held, request=replace(held.request, route="openai"))
    routes = {"openai": "http://127.0.0.1:9", "groq": "http://127.0.0.1:9"}
    async with replaying(held, routes=routes) as proxy:
        assert not fast(proxy, ASK.replace(b" /ask", b" /groq/ask"))
        assert fast(proxy, ASK.replace(b" /ask", b" /openai/ask"))


async def test_what_must_be_put_into_another_form_takes_the_ordinary_path() -> None:
    async with replaying(replace(recordings()[4], stored_keys=("key",))) as proxy:
        assert not fast(proxy, ASK)


async def test_a_long_body_takes_the_ordinary_path() -> None:
    body = b'"' + b"x" * LARGEST_BODY + b'"'
    head = ASK.partition(b"\r\n\r\n")[0].replace(b"/ask", b"/long") + b"\r\n\r\n"
    head = head.replace(b": %d" % len(PROMPT), b": %d" % len(body))
    async with replaying(recording(0, "/long", body, method="POST")) as proxy:
        assert not fast(proxy, head + body)


async def test_of_several_answers_the_first_rule_looks_at_the_spelling() -> None:
    spelt = PROMPT.replace(b" ", b"")
    held = recordings()[4], recording(5, "/ask", spelt, method="POST", answer=b"spelt")
    async with replaying(*held, policy=Policy(repeats="first")) as proxy, proxy.connect() as client:
        sent = b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(spelt)
        other = await client.ask(b"POST /ask HTTP/1.1\r\nHost: a\r\n" + sent + spelt)
        one = await client.ask(ASK)

    assert [one.body, other.body] == [b"recorded", b"spelt"]


async def test_of_recordings_that_a_new_rule_made_equal_the_unused_one_answers() -> None:
    other = PROMPT.replace(b"hello", b"other")
    held = recordings()[4], recording(5, "/ask", other, method="POST", answer=b"the other")
    async with replaying(*held) as proxy, proxy.connect() as client:
        first = await client.ask(ASK.replace(b"hello", b"other"))
        await proxy.broker.add_rules("default", parse_rules({"ignore": ["body.prompt"]}))
        second = await client.ask(ASK)

    assert [first.body, second.body] == [b"the other", b"recorded"]


async def test_an_edited_answer_is_served_at_once() -> None:
    async with replaying(*recordings()) as proxy:
        assert fast(proxy, ASK)
        await proxy.broker.rewind()
        changed = recording(4, "/ask", PROMPT, method="POST", answer=b"edited")
        await proxy.broker.editor.edit("default", 4, changed)

        async with proxy.connect() as client:
            assert (await client.ask(ASK)).body == b"edited"


async def test_no_secret_of_a_target_reaches_the_journal() -> None:
    key = "sk-abcdefghijklmnopqrstuvwx"
    held = recording(0, f"/list?key={key}")
    async with replaying(held) as proxy:
        assert fast(proxy, f"GET /list?key={key} HTTP/1.1\r\nHost: a\r\n\r\n".encode())

        (entry,) = proxy.journal
        assert key not in entry.path
        assert entry.path.startswith("/list?key=")


async def test_a_secret_that_is_met_later_is_gone_from_the_journal() -> None:
    get = b"GET /list?page=abcdefghijklmnop HTTP/1.1\r\nHost: a\r\n\r\n"
    async with replaying(recording(0, "/list?page=abcdefghijklmnop")) as proxy:
        assert fast(proxy, get)
        assert len(proxy.journal) == 1
        proxy.broker.redaction.learn("run", [Secret("session", b"abcdefghijklmnop")])
        assert fast(proxy, get)

        shown = [entry.path for entry in proxy.journal]
        assert ["abcdefghijklmnop" in path for path in shown] == [False, False]


async def test_a_secret_has_the_placeholder_of_the_cassette_that_answers() -> None:
    held = recording(0, "/list?key=sk-abcdefghijklmnopqrstuvwx")
    get = b"GET /list?key=sk-abcdefghijklmnopqrstuvwx HTTP/1.1\r\nHost: a\r\n\r\n"
    async with replaying(held) as proxy:
        await proxy.store.save("other", StoredCassette(replace(HEAD, run_id="another"), (held,)))
        assert fast(proxy, get)
        await proxy.broker.insert("other")
        assert fast(proxy, get)

        one, other = (entry.path for entry in proxy.journal)
        assert one != other


def handed_out(headers: Headers, body: bytes = b"{}") -> Interaction:
    """A recording of a service that hands something out."""
    found = recording(0, "/x", answer=body, headers=(*JSON, *headers))
    return replace(found, request=replace(found.request, base="http://up.example"))


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (
            handed_out(((b"Set-Cookie", b"a=b; Domain=up.example; Path=/; Secure"),)),
            b"Set-Cookie: a=b; Path=PREFIX/\r\n",
        ),
        (
            handed_out(((b"Location", b"http://up.example/2"),)),
            b"Location: http://HOSTPREFIX/2\r\n",
        ),
        (
            handed_out((), b'{"nextLink":"http://up.example/2"}'),
            b'{"nextLink":"http://HOSTPREFIX/2"}',
        ),
    ],
    ids=["cookie", "location", "body"],
)
async def test_an_answer_that_leads_back_is_prepared_for_each_way_to_address_the_proxy(
    held: Interaction, expected: bytes
) -> None:
    async with replaying(held) as proxy:
        for host, prefix in [(b"a", b""), (b"b", b""), (b"a", b"/@default"), (b"a", b"")]:
            segment = b"GET %b/x HTTP/1.1\r\nHost: %b\r\n\r\n" % (prefix, host)
            for _ in range(2):
                found = answer(proxy, segment)
                assert found is not None
                assert expected.replace(b"HOST", host).replace(b"PREFIX", prefix) in found


async def test_an_address_that_no_route_leads_to_is_named_on_the_ordinary_way() -> None:
    async with replaying(handed_out(((b"Location", b"http://other.example/2"),))) as proxy:
        assert not fast(proxy, b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n")


async def test_prepared_answers_go_with_their_cassette() -> None:
    prepared = PreparedAnswers(None, lambda: 0.0)
    address = RequestAddress(None, Route("default", None), "/", "")
    target = target_of("GET", address, b"a", ())
    async with replaying() as proxy:
        cassette = proxy.broker.cassette()
        assert cassette is not None
        for item in recordings():
            prepared.prepare(cassette, item, target, 0)
        held = prepared.size
        await proxy.broker.eject()
        del cassette
        # It is taken apart in steps.
        await until(lambda: gc.collect() >= 0 and prepared.size == 0)

    assert held > 0
