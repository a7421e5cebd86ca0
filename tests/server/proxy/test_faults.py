"""Faults laid over recorded answers: what the client gets, how often, and what counts as used."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.control import Mode
from tapeway.core.model.faults import parse_faults
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Framing, Request, Response, ResponseHead
from tapeway.core.streams.aws_frames import MEDIA_TYPE, parse_frames
from tapeway.core.streams.pacing import Pace
from tapeway.engine.hooks import NO_HOOKS, Hooks
from tapeway.server.proxy import ProxyOptions
from tapeway.stores.memory import MemoryStore
from tests.server.in_process_proxy import RunningProxy, running_proxy
from tests.server.streaming import LAST, chunk, head, routes
from tests.server.test_hits import HEAD
from tests.support.event_stream_frames import frame
from tests.support.fakes.broker import until
from tests.support.raw_client import Answer
from tests.support.socket_upstream import Peer

SSE = b"text/event-stream"
JSON = b"application/json"
ASK = b'{"model":"gpt-5","stream":true}'
EVENTS = [b'data: {"choices":[{"delta":{"content":"%d"}}]}\n\n' % n for n in range(4)]
DONE = b"data: [DONE]\n\n"
CHAT = "/v1/chat/completions"


def recorded(
    *chunks: bytes,
    index: int = 0,
    route: str = "openai",
    target: str = CHAT,
    media: bytes = SSE,
    framing: Framing = "chunked",
    body: bytes = ASK,
) -> Interaction:
    length = sum(map(len, chunks)) if framing == "length" else None
    answer = ResponseHead(200, "OK", ((b"Content-Type", media),), framing, length=length)
    request = Request(route, "POST", target, ((b"Content-Type", JSON),), body)
    pieces = [(piece, 10.0 * number) for number, piece in enumerate(chunks)]
    return Interaction(index, request, Response.of_chunks(answer, pieces))


STREAM = recorded(*EVENTS, DONE)
DOCUMENT = recorded(b'{"id":1,"text":"whole"}', media=JSON, framing="length")


@asynccontextmanager
async def replaying(
    *recordings: Interaction,
    mode: Mode = "replay",
    options: ProxyOptions | None = None,
    hooks: Hooks = NO_HOOKS,
) -> AsyncIterator[RunningProxy]:
    store = MemoryStore()
    await store.save("default", StoredCassette(HEAD, recordings))
    names = {item.request.route for item in recordings}
    urls = dict.fromkeys(names, "http://127.0.0.1:9")
    async with running_proxy(
        mode=mode, routes=urls, store=store, options=options, hooks=hooks
    ) as proxy:
        await proxy.broker.prepare()
        yield proxy


async def lay(proxy: RunningProxy, **fault: object) -> None:
    await proxy.broker.set_faults(parse_faults([{"name": "f", **fault}]))


async def ask(proxy: RunningProxy, *fields: bytes, item: Interaction = STREAM) -> Answer | None:
    """The answer to the request of a recording; None where the connection ends without one."""
    request = item.request
    line = f"POST /{request.route}{request.target}".encode()
    try:
        return await proxy.ask(line, b"Content-Type: application/json", *fields, body=request.body)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


async def answered(proxy: RunningProxy, *fields: bytes, item: Interaction = STREAM) -> Answer:
    answer = await ask(proxy, *fields, item=item)
    assert answer is not None
    return answer


async def test_an_error_of_the_provider_stands_once_in_place_of_the_answer() -> None:
    async with replaying(STREAM) as proxy:
        await lay(proxy, do="429", retry_after=2)
        first, second = await answered(proxy), await answered(proxy)

        assert (first.status, first.outcome) == (429, b"replayed")
        assert first.value(b"Tapeway-Fault") == b"f"
        assert first.value(b"Tapeway-Interaction") == b"0"
        assert first.value(b"Retry-After") == b"2"
        assert json.loads(first.body)["error"]["code"] == "rate_limit_exceeded"
        assert (second.status, second.body) == (200, b"".join([*EVENTS, DONE]))
        assert second.values(b"Tapeway-Fault") == []
        newest, oldest = proxy.journal
        assert oldest.fault is not None
        assert (oldest.fault.name, oldest.outcome, oldest.status) == ("f", "replayed", 429)
        assert oldest.message == "fault 'f': 429"
        assert newest.fault is None


@pytest.mark.parametrize(
    ("route", "target", "where", "said"),
    [
        ("openai", "/v1/responses", ("error", "type"), "server_error"),
        ("anthropic", "/v1/messages", ("error", "type"), "overloaded_error"),
        ("gemini", "/v1beta/models/g:generateContent", ("error", "status"), "UNAVAILABLE"),
        ("bedrock", "/model/m/converse", ("message",), "Overloaded"),
        ("cohere", "/v2/chat", ("message",), "Overloaded"),
        ("ollama", "/api/chat", ("error",), "Overloaded"),
        ("other", "/anything", ("error", "message"), "Overloaded"),
    ],
)
async def test_an_error_has_the_form_of_its_provider(
    route: str, target: str, where: tuple[str, ...], said: str
) -> None:
    item = recorded(b"{}", route=route, target=target, media=JSON)
    async with replaying(item) as proxy:
        await lay(proxy, do="529")
        answer = await answered(proxy, item=item)

    found: Any = json.loads(answer.body)
    for name in where:
        found = found[name]
    assert (answer.status, answer.reason, found) == (529, b"Overloaded", said)
    named = answer.value(b"x-amzn-ErrorType")
    assert named == (b"ServiceUnavailableException" if route == "bedrock" else b"")


async def test_a_stream_is_reset_behind_an_event() -> None:
    async with replaying(STREAM) as proxy:
        await lay(proxy, do="reset", after="2 events")
        answer = await answered(proxy)

    assert (answer.status, answer.complete) == (200, False)
    assert answer.body == b"".join(EVENTS[:2])
    assert answer.value(b"Tapeway-Fault") == b"f"


async def test_a_connection_is_reset_before_any_answer() -> None:
    async with replaying(STREAM) as proxy, proxy.connect() as client:
        await lay(proxy, do="reset")
        fields = b"Content-Type: application/json"
        with pytest.raises(ConnectionResetError):
            await client.ask(proxy.request(b"POST /openai" + CHAT.encode(), fields, body=ASK))


@pytest.mark.parametrize("item", [STREAM, recorded(*EVENTS, DONE, framing="length")])
async def test_a_stream_ends_early_in_good_order(item: Interaction) -> None:
    async with replaying(item) as proxy, proxy.connect() as client:
        await lay(proxy, do="end", after="3 events")
        fields = b"Content-Type: application/json"
        request = proxy.request(b"POST /openai" + CHAT.encode(), fields, body=ASK)
        cut, whole = await client.ask(request), await client.ask(request)

    assert (cut.complete, cut.body) == (True, b"".join(EVENTS[:3]))
    assert whole.body == b"".join([*EVENTS, DONE])


async def test_a_fault_may_stand_inside_an_event() -> None:
    async with replaying(STREAM) as proxy:
        await lay(proxy, do="end", after="50 bytes")
        answer = await answered(proxy)

    assert answer.body == b"".join(EVENTS)[:50]


async def test_an_event_comes_twice() -> None:
    async with replaying(STREAM) as proxy:
        await lay(proxy, do="repeat", after="2 events")
        answer = await answered(proxy)

    assert answer.body == b"".join([*EVENTS[:2], EVENTS[1], *EVENTS[2:], DONE])


async def test_the_json_of_an_event_is_broken() -> None:
    async with replaying(STREAM) as proxy:
        await lay(proxy, do="corrupt", after="1 event")
        answer = await answered(proxy)

    events = answer.body.split(b"\n\n")
    assert [event + b"\n\n" for event in events[:1] + events[2:4]] == [EVENTS[0], *EVENTS[2:]]
    with pytest.raises(ValueError, match=r"Expecting|Unterminated"):
        json.loads(events[1].removeprefix(b"data: "))


async def test_a_document_is_broken_too_and_has_the_right_length() -> None:
    async with replaying(DOCUMENT) as proxy:
        await lay(proxy, do="corrupt")
        answer = await answered(proxy, item=DOCUMENT)

    assert answer.complete
    assert 0 < len(answer.body) < DOCUMENT.response.size
    assert DOCUMENT.response.body.startswith(answer.body)


FRAMES = [frame("contentBlockDelta", b'{"delta":{"text":"%d"}}' % n) for n in range(3)]
BEDROCK = recorded(*FRAMES, route="bedrock", target="/model/m/converse-stream", media=MEDIA_TYPE)
ANTHROPIC = recorded(
    *[b'event: ping\ndata: {"type":"ping"}\n\n'] * 3, route="anthropic", target="/v1/messages"
)
GEMINI = recorded(
    *[b'data: {"candidates":[]}\r\n\r\n'] * 3,
    route="gemini",
    target="/v1beta/models/g:streamGenerateContent?alt=sse",
)
OLLAMA = recorded(
    *[b'{"done":false}\n'] * 3, route="ollama", target="/api/chat", media=b"application/x-ndjson"
)
RESPONSES = recorded(
    *[b'event: a\ndata: {"type":"a"}\n\n'] * 3, route="openai", target="/v1/responses"
)


@pytest.mark.parametrize(
    ("item", "event"),
    [
        (ANTHROPIC, b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error",'),
        (GEMINI, b'data: {"error":{"code":503,"message":'),
        (OLLAMA, b'{"error":"The server had an error'),
        (RESPONSES, b'event: error\ndata: {"type":"error","code":"server_error",'),
        (STREAM, b'data: {"error":{"message":"The server had an error'),
    ],
)
async def test_a_stream_reports_an_error_as_its_provider_does(
    item: Interaction, event: bytes
) -> None:
    async with replaying(item) as proxy:
        await lay(proxy, do="error_event", after="2 events")
        answer = await answered(proxy, item=item)

    before = b"".join(item.response.pieces()[:2])
    assert answer.complete
    assert answer.body.startswith(before + event)
    line_end = b"\r\n" if item is GEMINI else b"\n"
    assert answer.body.endswith(b"}" + line_end * (1 if item is OLLAMA else 2))


async def test_a_bedrock_stream_ends_with_an_exception_frame_of_right_checksums() -> None:
    async with replaying(BEDROCK) as proxy:
        await lay(proxy, do="error_event", after="2 events")
        answer = await answered(proxy, item=BEDROCK)

    frames = parse_frames(answer.body)
    assert answer.body.startswith(b"".join(FRAMES[:2]))
    assert [part.headers is None for part in frames] == [False] * 3
    assert frames[2].headers is not None
    assert b":message-type\x07\x00\x09exception" in frames[2].headers
    assert json.loads(frames[2].text)["message"]


async def test_a_broken_frame_of_bedrock_has_right_checksums() -> None:
    async with replaying(BEDROCK) as proxy:
        await lay(proxy, do="corrupt", after="1 event")
        answer = await answered(proxy, item=BEDROCK)

    frames = parse_frames(answer.body)
    assert [part.headers is None for part in frames] == [False] * 3
    with pytest.raises(ValueError, match=r"Expecting|Unterminated"):
        json.loads(frames[1].text)


@pytest.mark.parametrize(
    ("target", "route", "parts", "at"),
    [
        (
            *("/v1/messages", "anthropic"),
            [b'"type":"text_delta"', b'"type":"tool_use"', b'"type":"input_json_delta"', b"1"],
            3,
        ),
        (CHAT, "openai", [b'"tool_calls":null', b'"tool_calls":[{"index":0}]', b"1"], 2),
        (
            *("/v1/responses", "openai"),
            [b'"type":"function_call"', b'"type":"response.function_call_arguments.delta"', b"1"],
            2,
        ),
        ("/v1beta/models/g:streamGenerateContent", "gemini", [b"1", b'"functionCall":{}', b"1"], 2),
    ],
)
async def test_a_fault_stands_in_the_first_call_of_a_tool(
    target: str, route: str, parts: list[bytes], at: int
) -> None:
    events = [b"data: {%b}\n\n" % (b'"n":1' if part == b"1" else part) for part in parts]
    item = recorded(*events, target=target, route=route)
    async with replaying(item) as proxy:
        await lay(proxy, do="end", after="tool_call")
        answer = await answered(proxy, item=item)

    assert answer.body == b"".join(events[:at])


async def test_a_stream_pauses_and_goes_on() -> None:
    async with replaying(STREAM) as proxy, proxy.connect() as client:
        await lay(proxy, do="stall", after="2 events", seconds=0.3)
        fields = b"Content-Type: application/json"
        loop = asyncio.get_running_loop()
        await client.send(proxy.request(b"POST /openai" + CHAT.encode(), fields, body=ASK))
        await client.until(EVENTS[1] + b"\r\n")
        before = loop.time()
        rest = await client.until(b"0\r\n\r\n")

        assert loop.time() - before >= 0.29
        assert rest == b"".join(map(chunk, [*EVENTS[2:], DONE])) + b"0\r\n\r\n"


async def test_the_chunks_of_a_slow_stream_come_one_after_another() -> None:
    async with replaying(STREAM) as proxy:
        await lay(proxy, do="slow", seconds=0.05)
        loop = asyncio.get_running_loop()
        began = loop.time()
        answer = await answered(proxy)

    assert loop.time() - began >= 0.24
    assert answer.body == b"".join([*EVENTS, DONE])


async def test_nothing_comes_until_the_client_leaves() -> None:
    async with replaying(STREAM) as proxy:
        await lay(proxy, do="timeout")
        async with proxy.connect() as client:
            fields = b"Content-Type: application/json"
            await client.send(proxy.request(b"POST /openai" + CHAT.encode(), fields, body=ASK))
            await until(lambda: len(proxy.journal) == 1)
            assert proxy.proxy.in_flight == 1
            again = await answered(proxy)
        await proxy.proxy.wait_until_idle()

    assert again.body == b"".join([*EVENTS, DONE])


async def test_silence_ends_with_a_reset_where_it_has_an_end() -> None:
    async with replaying(STREAM) as proxy:
        await lay(proxy, do="timeout", seconds=0.05)
        assert await ask(proxy) is None
        await lay(proxy, do="timeout", seconds=0.05, after="1 event")
        cut = await answered(proxy)

    assert (cut.body, cut.complete) == (EVENTS[0], False)


async def test_a_stop_does_not_wait_for_silence() -> None:
    async with replaying(STREAM) as proxy, proxy.connect() as client:
        await lay(proxy, do="timeout")
        fields = b"Content-Type: application/json"
        await client.send(proxy.request(b"POST /openai" + CHAT.encode(), fields, body=ASK))
        await until(lambda: len(proxy.journal) == 1)
        proxy.proxy.drain()
        await proxy.proxy.wait_until_idle()
        assert await client.rest() == b""


async def test_a_fault_moves_no_cursor() -> None:
    first, second = recorded(b"one", media=JSON), recorded(b"two", media=JSON, index=1)
    async with replaying(first, second) as proxy:
        await lay(proxy, do="500", times=2)
        answers = [await answered(proxy) for _ in range(4)]

        assert [answer.status for answer in answers] == [500, 500, 200, 200]
        assert [answer.body for answer in answers[2:]] == [b"one", b"two"]
        assert [answer.value(b"Tapeway-Interaction") for answer in answers[:3]] == [b"0"] * 3


async def test_a_fault_counts_in_the_take_and_anew_where_it_is_set_anew() -> None:
    async with replaying(STREAM) as proxy:
        await lay(proxy, do="500")
        statuses = [(await answered(proxy)).status for _ in range(2)]
        await proxy.broker.rewind()
        statuses += [(await answered(proxy)).status for _ in range(2)]
        await lay(proxy, do="500")
        statuses += [(await answered(proxy)).status for _ in range(2)]
        await proxy.broker.set_faults(())
        statuses.append((await answered(proxy)).status)

    assert statuses == [500, 200, 500, 200, 500, 200, 200]


@pytest.mark.parametrize(
    ("match", "hits"),
    [
        ({}, True),
        ({"method": "post", "path": "/v1/*/completions"}, True),
        ({"path": "/v1/**"}, True),
        ({"path": "/v1/*"}, False),
        ({"method": "GET"}, False),
        ({"model": "gpt-*"}, True),
        ({"model": "claude-*"}, False),
        ({"cassette": "default"}, True),
        ({"cassette": "other"}, False),
        ({"index": 0}, True),
        ({"index": 1}, False),
    ],
)
async def test_a_fault_is_for_what_it_matches(match: dict[str, object], hits: bool) -> None:
    async with replaying(STREAM) as proxy:
        await lay(proxy, do="500", match=match)
        assert ((await answered(proxy)).status == 500) is hits


@pytest.mark.parametrize(
    ("item", "fault"),
    [
        (STREAM, {"do": "close"}),
        (STREAM, {"do": "reset", "after": "6 events"}),
        (STREAM, {"do": "end", "after": "5 events"}),
        (STREAM, {"do": "end", "after": "tool_call"}),
        (STREAM, {"do": "reset", "after": "1000 bytes"}),
        (DOCUMENT, {"do": "error_event"}),
        (DOCUMENT, {"do": "repeat"}),
    ],
)
async def test_a_fault_whose_place_an_answer_does_not_come_to_waits_for_another(
    item: Interaction, fault: dict[str, object]
) -> None:
    async with replaying(item) as proxy:
        faults = parse_faults([{"name": "f", **fault}, {"name": "g", "do": "503"}])
        await proxy.broker.set_faults(faults)
        answers = [await answered(proxy, item=item) for _ in range(2)]

    assert [answer.value(b"Tapeway-Fault") for answer in answers] == [b"g", b""]
    assert answers[1].body == item.response.body


async def test_faults_happen_in_their_order() -> None:
    async with replaying(STREAM) as proxy:
        faults = [{"name": name, "do": "500", "times": 2} for name in "ab"]
        await proxy.broker.set_faults(parse_faults(faults))
        seen = [(await answered(proxy)).value(b"Tapeway-Fault") for _ in range(5)]

    assert seen == [b"a", b"a", b"b", b"b", b""]


async def test_a_request_names_its_fault() -> None:
    async with replaying(STREAM) as proxy:
        faults = [
            {"name": "always", "do": "503", "times": 0, "match": {"cassette": "other"}},
            {"name": "once", "do": "500", "match": {"cassette": "other"}},
        ]
        await proxy.broker.set_faults(parse_faults(faults))
        statuses = [
            (await answered(proxy, *fields)).status
            for fields in (
                *((), (b"Tapeway-Fault: always",), (b"Tapeway-Fault: always",)),
                *((b"tapeway-fault: once",), (b"Tapeway-Fault: once",)),
            )
        ]
        unknown = await answered(proxy, b"Tapeway-Fault: never")

    assert statuses == [200, 503, 503, 500, 200]
    assert (unknown.status, unknown.outcome) == (400, b"error")
    assert json.loads(unknown.body)["error"]["code"] == "no_fault"
    assert "in force: always, once" in json.loads(unknown.body)["message"]


async def test_a_fault_keeps_the_recorded_pace() -> None:
    options = ProxyOptions(max_body=2**20, body_idle_s=10, pace=Pace(5))
    async with replaying(STREAM, options=options) as proxy:
        await lay(proxy, do="end", after="3 events")
        loop = asyncio.get_running_loop()
        began = loop.time()
        answer = await answered(proxy)

    assert loop.time() - began >= 0.09
    assert answer.body == b"".join(EVENTS[:3])


@pytest.mark.parametrize("mode", ["record", "auto", "passthrough"])
async def test_a_live_answer_gets_no_fault_and_its_upstream_never_hears_of_one(mode: Mode) -> None:
    stream = [head(SSE), *map(chunk, [*EVENTS, DONE]), LAST]
    async with (
        Peer(*stream) as peer,
        running_proxy(mode=mode, routes=routes(peer.url)) as proxy,
    ):
        await lay(proxy, do="reset", after="1 event")
        answer = await answered(proxy, b"Tapeway-Fault: f")
        again = await answered(proxy) if mode == "auto" else None

        assert answer.body == b"".join([*EVENTS, DONE])
        assert b"apeway-" not in peer.requests[0]
        assert b"Tapeway-Fault" not in answer.head
        if again is not None:
            assert (again.body, again.complete) == (EVENTS[0], False)
            [stored] = await proxy.recorded()
            assert stored.response.body == b"".join([*EVENTS, DONE])
            assert stored.failure is None


async def test_a_fault_is_laid_over_what_a_hook_has_changed_and_asks_the_hook_once() -> None:
    asked: list[object] = []

    def before_replay(request: object, answer: Any) -> Any:
        asked.append(request)
        return {**answer, "json": {"text": "changed by the hook"}}

    async with replaying(DOCUMENT, hooks=Hooks(before_replay=before_replay)) as proxy:
        await lay(proxy, do="end", after="20 bytes")
        cut = await answered(proxy, item=DOCUMENT)
        whole = [await answered(proxy, item=DOCUMENT) for _ in range(2)]

    assert whole[0].body.startswith(cut.body)
    assert (len(cut.body), b"changed by the hook" in whole[1].body) == (20, True)
    assert len(asked) == 3


async def test_hits_are_answered_at_once_again_when_no_fault_is_in_force() -> None:
    async with replaying(STREAM) as proxy:
        hits = proxy.proxy.hits
        assert hits is not None
        counts = [hits.count]
        await answered(proxy)
        counts.append(hits.count)
        await lay(proxy, do="500", match={"path": "/other"})
        await answered(proxy)
        counts.append(hits.count)
        await proxy.broker.set_faults(())
        await answered(proxy)
        counts.append(hits.count)

    assert counts == [0, 1, 1, 2]


TURNS = b'{"model":"m","messages":[{"role":"user","content":"hello"}%b]}'
FIRST = TURNS % b""
GONE_ON = TURNS % b',{"role":"assistant","content":"01"},{"role":"user","content":"go on"}'
ANOTHER = TURNS % b',{"role":"user","content":"hello?"}'


async def faulted_of(proxy: RunningProxy) -> list[tuple[str, str, bool | None]]:
    [report] = await proxy.broker.reports()
    return [(call.fault, call.next, call.kept_retry_after) for call in report.faulted]


@pytest.mark.parametrize(("retry_after", "kept"), [(None, None), (0, True), (30, False)])
async def test_the_report_says_whether_a_client_asked_again_and_kept_retry_after(
    retry_after: float | None, kept: bool | None
) -> None:
    more = {} if retry_after is None else {"retry_after": retry_after}
    async with replaying(STREAM) as proxy:
        await lay(proxy, do="429", **more)
        await answered(proxy)
        before = await faulted_of(proxy)
        await answered(proxy)
        after = await faulted_of(proxy)
        [report] = await proxy.broker.reports()

    assert before == [("f", "gave_up", None)]
    assert after == [("f", "retried", kept)]
    assert report.faulted[0].after_s is not None
    assert report.faulted[0].message.startswith("POST /v1/chat/completions: 429 by fault 'f'; the")


@pytest.mark.parametrize("do", ["stall", "slow"])
async def test_a_client_that_got_the_whole_answer_late_has_not_taken_a_cut_one(do: str) -> None:
    items = [recorded(*EVENTS, DONE, body=FIRST), recorded(*EVENTS, DONE, body=GONE_ON, index=1)]
    async with replaying(*items) as proxy:
        await lay(proxy, do=do, seconds=0.01, after="1 event")
        for item in items:
            await answered(proxy, item=item)

        assert await faulted_of(proxy) == [("f", "gave_up", None)]


@pytest.mark.parametrize(
    ("after", "next_step"), [(GONE_ON, "took_for_whole"), (ANOTHER, "gave_up")]
)
async def test_the_report_says_whether_a_client_took_a_cut_answer_for_whole(
    after: bytes, next_step: str
) -> None:
    items = [recorded(*EVENTS, DONE, body=FIRST), recorded(*EVENTS, DONE, body=after, index=1)]
    async with replaying(*items) as proxy:
        await lay(proxy, do="end", after="2 events")
        for item in items:
            await answered(proxy, item=item)

        assert await faulted_of(proxy) == [("f", next_step, None)]


async def test_each_fault_of_a_call_that_goes_on_failing_is_told_apart() -> None:
    async with replaying(STREAM) as proxy:
        await lay(proxy, do="500", times=2)
        for _ in range(3):
            await answered(proxy)

        assert await faulted_of(proxy) == [("f", "retried", None), ("f", "retried", None)]
