"""Header fields pass as they are: every byte, in order, in their case, as often as they came."""

import pytest

from tapeway.core.model.control import Mode
from tests.server.in_process_proxy import running_proxy, written_and_read
from tests.support.socket_upstream import OK, Peer

BREAKING = b"\x00\r\n"
CONTROLS = bytes([*range(0x20), 0x7F]).replace(b"\t", b"")
REQUEST_BYTES = [bytes([byte]) for byte in range(256) if byte not in CONTROLS and byte < 0x80]
HIGH_BYTES = [bytes([byte]) for byte in range(0x80, 0x100)]

MIXED = (
    b"X-Zebra: 1",
    b"x-apple: 2",
    b"X-ZEBRA: 3",
    b"X-Apple: 4",
    b"x-zebra: 5",
    b"Accept: text/html",
    b"accept: */*",
    b"Cookie: a=1",
    b"cookie: b=2",
    b"X-Empty: ",
    b"X-Inner:  a  b",
)


def fields_of(request: bytes) -> list[bytes]:
    """The lines of a request but its first one and Host."""
    lines = request.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]
    return [line for line in lines if not line.startswith(b"Host: ")]


def trimmed(lines: tuple[bytes, ...]) -> list[bytes]:
    """Without the white space around a value, which is not part of it."""
    pairs = [line.partition(b":") for line in lines]
    return [name + b": " + value.strip(b" \t") for name, _, value in pairs]


@pytest.mark.parametrize("mode", ["record", "passthrough"])
async def test_the_upstream_gets_what_the_client_sent_and_nothing_else(mode: Mode) -> None:
    async with Peer() as peer, running_proxy(peer.url, mode=mode) as proxy:
        await proxy.ask(b"GET /", *MIXED)
        await proxy.ask(b"GET /")
        await proxy.ask(b"POST /", body=b"hello")

        assert fields_of(peer.requests[0]) == trimmed(MIXED)
        assert fields_of(peer.requests[1]) == []
        assert fields_of(peer.requests[2]) == [b"Content-Length: 5"]


async def test_a_length_stays_where_the_client_wrote_it() -> None:
    lines = (b"X-A: 1", b"content-length: 5", b"X-B: 2")
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        await proxy.send(proxy.request(b"POST /", *lines) + b"hello")

        assert fields_of(peer.requests[0]) == list(lines)


async def test_the_upstream_is_named_in_host() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        await proxy.ask()
        await proxy.send(b"GET / HTTP/1.0\r\n\r\n")

        hosts = [request.split(b"\r\n")[1] for request in peer.requests]
        assert hosts == [b"Host: " + peer.url.removeprefix("http://").encode()] * 2


async def test_the_choice_of_a_cassette_does_not_reach_the_upstream() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        answer = await proxy.ask(b"GET /", b"Tapeway-Cassette: other", b"X-A: 1")

        assert fields_of(peer.requests[0]) == [b"X-A: 1"]
        assert answer.value(b"tapeway-cassette") == b"other"


async def test_every_ascii_byte_reaches_the_upstream_as_it_is() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        values = [b"a" + byte + b"b" for byte in REQUEST_BYTES]
        await proxy.ask(b"GET /", *[b"X: " + value for value in values])

        assert fields_of(peer.requests[0]) == [b"X: " + value for value in values]


@pytest.mark.parametrize("mode", ["record", "auto", "passthrough"])
async def test_a_value_that_is_not_utf8_reaches_the_upstream_byte_for_byte(mode: Mode) -> None:
    values = [b"X-Odd: caf" + byte for byte in HIGH_BYTES]
    async with Peer() as peer, running_proxy(peer.url, mode=mode) as proxy:
        for path, part in ((b"GET /1", values[:64]), (b"GET /2", values[64:])):
            answers = [await proxy.ask(path, *part) for _ in range(2)]

            assert [answer.status for answer in answers] == [200, 200]
            assert {*map(tuple, map(fields_of, peer.requests))} == {tuple(part)}
            peer.requests.clear()


@pytest.mark.parametrize("mode", ["record", "passthrough"])
async def test_the_client_gets_what_the_upstream_sent_and_nothing_else(mode: Mode) -> None:
    cookies = (b"Set-Cookie: a=1; Path=/", b"set-cookie: b=2", b"Set-Cookie: a=3")
    head = b"\r\n".join([b"HTTP/1.1 200 OK", *MIXED, *cookies, b"Content-Length: 2", b"", b"ok"])
    async with Peer(head) as peer, running_proxy(peer.url, mode=mode) as proxy:
        answer = await proxy.ask()

        assert [b": ".join(field) for field in answer.passed_on] == trimmed((*MIXED, *cookies))


async def test_a_replay_has_the_fields_of_its_recording() -> None:
    cookies = (b"Set-Cookie: a=1; Path=/", b"set-cookie: b=2", b"Set-Cookie: a=3")
    head = b"\r\n".join([b"HTTP/1.1 200 OK", *MIXED, *cookies, b"Content-Length: 2", b"", b"ok"])
    async with Peer(head) as peer, running_proxy(peer.url) as proxy:
        await proxy.ask()
        store = await written_and_read(proxy.store)
    async with running_proxy(store=store, mode="replay") as proxy:
        answer = await proxy.ask()

    assert [b": ".join(field) for field in answer.passed_on] == trimmed((*MIXED, *cookies))


def odd_answer() -> bytes:
    """Every byte a value can hold, each in a field of its own, and in the reason."""
    values = [bytes([byte]) for byte in range(256) if byte not in BREAKING]
    lines = [b"X-%02x: a" % value[0] + value + b"b" for value in values]
    return b"\r\n".join(
        [b"HTTP/1.1 200 caf\xe9 \xff", *lines, b"X: a\xc3", b"Content-Length: 2", b"", b"ok"]
    )


async def test_every_byte_of_an_answers_values_passes_live_and_replayed() -> None:
    sent = odd_answer()
    async with Peer(sent) as peer, running_proxy(peer.url) as proxy:
        live = await proxy.ask()
        store = await written_and_read(proxy.store)
    async with running_proxy(store=store, mode="replay") as proxy:
        replayed = await proxy.ask()

    expected = sent.partition(b"\r\nContent-Length")[0].split(b"\r\n")
    for answer in (live, replayed):
        assert b"HTTP/1.1 200 " + answer.reason == expected[0]
        assert [b": ".join(field) for field in answer.passed_on] == expected[1:]


async def test_every_byte_of_an_answers_values_passes_through() -> None:
    async with Peer(odd_answer()) as peer, running_proxy(peer.url, mode="passthrough") as proxy:
        answer = await proxy.ask()

        expected = odd_answer().partition(b"\r\nContent-Length")[0].split(b"\r\n")[1:]
        assert [b": ".join(field) for field in answer.passed_on] == expected


@pytest.mark.parametrize("mode", ["record", "passthrough"])
@pytest.mark.parametrize(
    "line",
    [
        b"X: a\rb",
        b"X: a\x00b",
        b"X A: b",
        b"X : b",
        b": b",
        b"X(: b",
        "Ü: b".encode(),
        b"X\r\n b: c",
    ],
)
async def test_a_field_that_would_break_the_answer_is_an_error(line: bytes, mode: Mode) -> None:
    head = b"HTTP/1.1 200 OK\r\n" + line + b"\r\nContent-Length: 2\r\n\r\nok"
    async with (
        Peer(OK) as peer,
        running_proxy(peer.url, mode=mode) as proxy,
        proxy.connect() as app,
    ):
        peer.then(head)
        first = await app.ask(proxy.request(b"GET /1"))
        second = await app.ask(proxy.request(b"GET /2"))

        assert (first.status, second.status) == (502, 200)
        assert b"upstream_protocol" in first.body
        assert all(exchange.request.target == "/2" for exchange in await proxy.recorded())


async def test_marks_of_another_tapeway_upstream_are_not_passed_on() -> None:
    marks = b"Tapeway-Outcome: live\r\nTapeway-Cassette: theirs\r\nTapeway-Interaction: 9\r\n"
    head = b"HTTP/1.1 200 OK\r\n" + marks + b"Content-Length: 2\r\n\r\nok"
    async with Peer(head) as peer, running_proxy(peer.url) as proxy:
        answer = await proxy.ask()

        assert answer.outcome == b"recorded"
        assert answer.value(b"tapeway-cassette") == b"default"
        assert answer.value(b"tapeway-interaction") == b"0"
