"""What a response hands out leads its client through the proxy again, live and replayed."""

import asyncio
import gzip
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import get_args

import orjson
import pytest

from tapeway.core.matching.rules import Rules, meta_with_rules
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.control import Delivery, Mode
from tapeway.core.model.messages import LARGE_BODY
from tapeway.core.streams.pacing import Pace
from tapeway.engine.recording.selection import Policy
from tapeway.server.proxy import ProxyOptions
from tapeway.stores.memory import MemoryStore
from tests.server.in_process_proxy import MIB, HitsOn, running_proxy
from tests.support.raw_client import Answer
from tests.support.reuse import REUSED
from tests.support.socket_upstream import Peer

ALL = Policy(record_statuses=frozenset(range(200, 400)))
WAYS: list[tuple[Mode, Delivery]] = [
    ("record", "buffer"),
    ("record", "stream"),
    ("passthrough", "buffer"),
]


def options(
    delivery: Delivery = "buffer", *, rewrite: bool = True, pace: float = 0
) -> ProxyOptions:
    return ProxyOptions(
        max_body=64 * MIB, body_idle_s=5, delivery=delivery, rewrite=rewrite, pace=Pace(pace)
    )


@dataclass(frozen=True, slots=True)
class Answered:
    """A response of the upstream, whose URL is written `{up}`; its body in so many chunks, if any."""

    fields: tuple[str, ...] = ()
    body: bytes = b""
    chunks: int = 0

    def at(self, up: str) -> bytes:
        body = self.body.replace(b"{up}", up.encode())
        lines = [b"HTTP/1.1 200 OK", *[field.replace("{up}", up).encode() for field in self.fields]]
        if not self.chunks:
            return b"\r\n".join([*lines, b"Content-Length: %d" % len(body), b"", body])
        size = -(-len(body) // self.chunks)
        parts = [body[at : at + size] for at in range(0, len(body), size)]
        framed = b"".join([b"%x\r\n%b\r\n" % (len(part), part) for part in parts])
        return b"\r\n".join([*lines, b"Transfer-Encoding: chunked", b"", framed + b"0\r\n\r\n"])


JSON = "Content-Type: application/json"
LINE = b"GET /@c/svc/x"


async def every_answer(
    answered: Answered,
    mode: Mode = "record",
    delivery: Delivery = "buffer",
    *,
    rewrite: bool = True,
    rules: Rules | None = None,
) -> AsyncIterator[Answer]:
    """The live answer to a request and, where it is recorded, the replayed ones.

    Another proxy replays, whose route leads elsewhere: once in the ordinary way, and three times as it
    comes. The upstream's URL is written `{up}` in the answers, and that of the proxy `{own}`.
    """
    store = MemoryStore()
    if rules is not None:
        head = CassetteHead("2026-01-01T00:00:00+00:00", "run", meta_with_rules({}, rules))
        await store.save("c", StoredCassette(head, ()))
    async with Peer() as peer:
        peer.then(answered.at(peer.url))
        async with running_proxy(
            mode=mode,
            routes={"svc": peer.url},
            store=store,
            policy=ALL,
            options=options(delivery, rewrite=rewrite),
        ) as proxy:
            live = await proxy.ask(LINE)
        yield _written(live, {"{own}": proxy.url, "{up}": peer.url})
    if mode == "passthrough":
        return
    for hits in get_args(HitsOn):
        async with running_proxy(
            mode="replay",
            routes={"svc": "http://other.example"},
            store=store,
            options=options(rewrite=rewrite),
            hits=hits,
        ) as again:
            for _ in range(3):
                found = await again.ask(LINE)
                assert found.outcome == b"replayed"
                yield _written(found, {"{own}": again.url, "{up}": peer.url})


def _written(answer: Answer, names: dict[str, str]) -> Answer:
    """The answer with these URLs written as their names."""
    parts = [answer.head, *answer.chunks]
    for name, url in names.items():
        parts = [part.replace(url.encode(), name.encode()) for part in parts]
    return Answer(parts[0], parts[1:], answer.complete)


@pytest.mark.parametrize(("mode", "delivery"), WAYS)
async def test_every_field_leads_back(mode: Mode, delivery: Delivery) -> None:
    fields = (
        "X-Goog-Upload-URL: {up}/u?id=1",
        "Operation-Location: {up}/jobs/1",
        'Link: <{up}/x?page=2>; rel="next"',
        "NEL: {up}",
    )
    async for answer in every_answer(Answered(fields, b"ok"), mode, delivery):
        assert answer.value(b"x-goog-upload-url") == b"{own}/@c/svc/u?id=1"
        assert answer.value(b"operation-location") == b"{own}/@c/svc/jobs/1"
        assert answer.value(b"link") == b'<{own}/@c/svc/x?page=2>; rel="next"'
        assert answer.value(b"nel") == b"{up}"
        assert answer.body == b"ok"


@pytest.mark.parametrize(("mode", "delivery"), WAYS)
async def test_a_cookie_is_sent_back_to_the_proxy(mode: Mode, delivery: Delivery) -> None:
    fields = ("Set-Cookie: a=b; Domain=up.example; Path=/app; Secure", "Set-Cookie: c=d; HttpOnly")
    async for answer in every_answer(Answered(fields, b"ok"), mode, delivery):
        assert answer.values(b"set-cookie") == [b"a=b; Path=/@c/svc/app", b"c=d; HttpOnly"]


@pytest.mark.parametrize("rewrite", [True, False])
async def test_a_cookie_that_was_recorded_long_ago_lives_on_in_a_replay(rewrite: bool) -> None:
    # The clock of these proxies begins in 1970.
    expires = "Fri, 01 Jan 1960 01:00:00 GMT"
    fields = ("Date: Fri, 01 Jan 1960 00:00:00 GMT", f"Set-Cookie: a=b; Expires={expires}")
    answers = [answer async for answer in every_answer(Answered(fields), rewrite=rewrite)]

    (live, *replayed) = [answer.values(b"set-cookie")[0].decode() for answer in answers]
    assert live == f"a=b; Expires={expires}"
    assert replayed
    for cookie in replayed:
        assert (cookie != live) is rewrite
        assert (" 1960 " not in cookie) is rewrite


PAGE = b'{"results_url": "{up}/r",\n "url":"{up}/x", "nextLink":"{up}/2" }'
LED = b'{"results_url": "{own}/@c/svc/r",\n "url":"{up}/x", "nextLink":"{own}/@c/svc/2" }'


@pytest.mark.parametrize(("mode", "delivery"), WAYS)
@pytest.mark.parametrize("chunks", [0, 3])
async def test_known_members_of_json_lead_back_and_length_and_checksums_fit(
    mode: Mode, delivery: Delivery, chunks: int
) -> None:
    fields = (JSON, "Content-MD5: abc", "x-goog-hash: md5=a", "x-amz-checksum-crc32: a", "ETag: e")
    async for answer in every_answer(Answered(fields, PAGE, chunks), mode, delivery):
        assert (answer.body, answer.complete) == (LED, True)
        assert answer.value(b"etag") == b"e"
        assert not [name for name, _ in answer.fields if b"md5" in name or b"hash" in name]
        assert not answer.value(b"x-amz-checksum-crc32")


@pytest.mark.parametrize(("mode", "delivery"), WAYS)
async def test_a_document_that_hands_out_nothing_keeps_its_bytes_and_checksums(
    mode: Mode, delivery: Delivery
) -> None:
    answered = Answered(
        (JSON, "Content-MD5: abc"), b'{"url":"https://x.example","urls":3}', chunks=3
    )
    async for answer in every_answer(answered, mode, delivery):
        assert (answer.body, answer.complete) == (answered.body, True)
        assert len(answer.chunks) == 3 or mode == "passthrough"
        assert answer.value(b"content-md5") == b"abc"


async def test_the_recording_keeps_what_the_service_wrote() -> None:
    async with Peer() as peer, running_proxy(routes={"svc": peer.url}, policy=ALL) as proxy:
        body = PAGE.replace(b"{up}", peer.url.encode())
        peer.then(Answered((JSON, "Location: {up}/1"), PAGE).at(peer.url))
        answer = await proxy.ask(b"GET /svc/x")
        [recorded] = await proxy.recorded()

        assert answer.body != body
        assert recorded.response.body == body
        assert (b"Location", f"{peer.url}/1".encode()) in recorded.response.headers


@pytest.mark.parametrize(("mode", "delivery"), WAYS)
async def test_a_coded_document_is_led_back_and_plain(mode: Mode, delivery: Delivery) -> None:
    async with (
        Peer() as peer,
        running_proxy(
            mode=mode, routes={"svc": peer.url}, policy=ALL, options=options(delivery)
        ) as proxy,
    ):
        body = gzip.compress(PAGE.replace(b"{up}", peer.url.encode()))
        peer.then(Answered((JSON, "Content-Encoding: gzip"), body).at(peer.url))
        answer = await proxy.ask(b"GET /svc/x", b"Accept-Encoding: gzip")

        assert orjson.loads(answer.body)["nextLink"] == f"{proxy.url}/svc/2"
        assert not answer.value(b"content-encoding")


@pytest.mark.parametrize(("mode", "delivery"), WAYS)
async def test_a_coded_document_that_hands_out_nothing_stays_coded(
    mode: Mode, delivery: Delivery
) -> None:
    async with (
        Peer() as peer,
        running_proxy(
            mode=mode, routes={"svc": peer.url}, policy=ALL, options=options(delivery)
        ) as proxy,
    ):
        body = gzip.compress(b'{"url":"%b/x"}' % peer.url.encode())
        peer.then(Answered((JSON, "Content-Encoding: gzip"), body).at(peer.url))
        answer = await proxy.ask(b"GET /svc/x", b"Accept-Encoding: gzip")

        assert (answer.body, answer.value(b"content-encoding")) == (body, b"gzip")


@pytest.mark.parametrize("size", [300_000, LARGE_BODY])
@pytest.mark.parametrize(("mode", "delivery"), WAYS)
async def test_a_large_document_is_led_back_too(mode: Mode, delivery: Delivery, size: int) -> None:
    rest = b'","x":"%b"}' % (b"x" * size)
    async for answer in every_answer(
        Answered((JSON,), b'{"nextLink":"{up}/2' + rest), mode, delivery
    ):
        assert answer.body == b'{"nextLink":"{own}/@c/svc/2' + rest


ENDPOINT = b": hi\n\nevent: endpoint\ndata: /messages/?session_id=a\n\nevent: message\ndata: /x\n\n"


@pytest.mark.parametrize(("mode", "delivery"), WAYS)
@pytest.mark.parametrize("chunks", [0, 1, 9])
async def test_the_endpoint_of_an_mcp_server_leads_back(
    mode: Mode, delivery: Delivery, chunks: int
) -> None:
    answered = Answered(("Content-Type: text/event-stream",), ENDPOINT, chunks)
    async for answer in every_answer(answered, mode, delivery):
        assert answer.body == ENDPOINT.replace(b"/messages", b"/@c/svc/messages")
        assert answer.complete


@pytest.mark.parametrize("size", [300_000, LARGE_BODY])
async def test_the_endpoint_in_a_long_stream_leads_back_too(size: int) -> None:
    rest = b"data: %b\n\n" % (b"x" * size)
    answered = Answered(("Content-Type: text/event-stream",), ENDPOINT + rest, chunks=3)
    async for answer in every_answer(answered):
        assert answer.body == ENDPOINT.replace(b"/messages", b"/@c/svc/messages") + rest


@pytest.mark.parametrize("delivery", ["buffer", "stream"])
async def test_a_rule_names_further_members(delivery: Delivery) -> None:
    answered = Answered((JSON,), b'{"items":[{"href":"{up}/1"}],"url":"{up}/2"}')
    rules = Rules(addresses=("body.items[*].href",))
    async for answer in every_answer(answered, delivery=delivery, rules=rules):
        assert answer.body == answered.body.replace(b"{up}/1", b"{own}/@c/svc/1")


@pytest.mark.parametrize(("mode", "delivery"), WAYS)
async def test_rewriting_can_be_turned_off(mode: Mode, delivery: Delivery) -> None:
    answered = Answered((JSON, "Link: <{up}/2>"), PAGE)
    async for answer in every_answer(answered, mode, delivery, rewrite=False):
        assert (answer.body, answer.value(b"link")) == (PAGE, b"<{up}/2>")


async def test_a_replay_at_the_recorded_pace_leads_back_too() -> None:
    async with (
        Peer() as peer,
        running_proxy(
            mode="auto", rules=REUSED, routes={"svc": peer.url}, options=options(pace=1000)
        ) as proxy,
    ):
        peer.then(Answered((JSON,), PAGE).at(peer.url))
        answers = [await proxy.ask(b"GET /svc/x") for _ in range(2)]

        assert [answer.outcome for answer in answers] == [b"recorded", b"replayed"]
        assert answers[0].body == answers[1].body
        assert orjson.loads(answers[1].body)["nextLink"] == f"{proxy.url}/svc/2"


async def test_an_origin_without_a_route_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "tapeway.server.proxy")
    location = b"https://other.example/private/path"
    body = b'{"nextLink":"https://third.example/x"}'
    async with (
        Peer() as peer,
        running_proxy(
            mode="auto", rules=REUSED, routes={"svc": peer.url}, options=options()
        ) as proxy,
    ):
        peer.then(Answered((JSON, f"Location: {location.decode()}"), body).at(peer.url))
        answers = [await proxy.ask(b"GET /svc/x") for _ in range(3)]
        tally = proxy.journal.tallies["default"]

    assert [answer.outcome for answer in answers] == [b"recorded", b"replayed", b"replayed"]
    assert {answer.value(b"location") for answer in answers} == {location}
    assert list(tally.elsewhere) == ["https://other.example", "https://third.example"]
    messages = [record.getMessage() for record in caplog.records]
    assert [("other.example" in message, "third.example" in message) for message in messages] == [
        (True, False),
        (False, True),
    ]
    assert "private" not in caplog.text


async def test_a_model_s_answer_is_not_held_in_stream_delivery() -> None:
    async with (
        Peer() as peer,
        running_proxy(routes={"openai": peer.url}, options=options("stream")) as proxy,
    ):
        body = b'{"choices":[],"nextLink":"%b/x"}' % peer.url.encode()
        peer.then(Answered((JSON,), body).at(peer.url))
        answer = await proxy.ask(b"POST /openai/v1/chat/completions", body=b'{"model":"m"}')

        assert answer.body == body


@pytest.mark.parametrize("mode", ["record", "passthrough"])
async def test_documents_that_come_one_after_another_are_not_held(mode: Mode) -> None:
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    first, second, gate = b'{"event":1}\n', b'{"event":2}\n', asyncio.Event()
    async with (
        Peer(head, _chunk(first), gate, _chunk(second), b"0\r\n\r\n") as peer,
        running_proxy(mode=mode, routes={"svc": peer.url}, options=options("stream")) as proxy,
        proxy.connect() as client,
    ):
        await client.send(proxy.request(b"GET /svc/watch"))
        await client.until(_chunk(first))
        gate.set()

        assert await client.until(b"0\r\n\r\n") == _chunk(second) + b"0\r\n\r\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def test_a_document_that_breaks_off_while_it_is_held_is_an_error() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
    for mode in ("record", "passthrough"):
        async with (
            Peer(head, "close") as peer,
            running_proxy(mode=mode, routes={"svc": peer.url}, options=options("stream")) as proxy,
        ):
            answer = await proxy.ask(b"GET /svc/x")

            assert answer.status == 502
            assert orjson.loads(answer.body)["error"]["code"] == "upstream_truncated"
