"""Bodies that are no text, recorded and replayed over sockets: their lengths stay right."""

import base64
import json
import random
import string
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import LARGE_BODY, Response, ResponseHead
from tapeway.core.redaction.findings import find_secrets
from tapeway.core.redaction.known_values import KnownValues
from tapeway.core.redaction.redactor import Redactor
from tapeway.core.websocket.messages import WebSocketMessage
from tapeway.core.websocket.session_lines import session_line
from tapeway.ports import CassetteStore
from tapeway.server.proxy import ProxyOptions
from tests.core.redaction.key_kinds import KEYS
from tests.server.in_process_proxy import MIB, RunningProxy, running_proxy, written_and_read
from tests.support.binary_formats import BINARY_FORMATS, BinaryFormat
from tests.support.raw_client import Answer
from tests.support.socket_upstream import OK, Peer

NOWHERE = "http://127.0.0.1:9"
TOKEN = KEYS["GitHub"].encode()
OTHER = TOKEN[:-6] + b"Zz9Yy8"
JWT = KEYS["JSON web token"].encode()

FORMATS = pytest.mark.parametrize("name", BINARY_FORMATS)


def typed(media_type: bytes) -> tuple[bytes, ...]:
    return (b"Content-Type: " + media_type,) if media_type else ()


def sized(body: bytes, media_type: bytes) -> bytes:
    lines = [b"HTTP/1.1 200 OK", *typed(media_type), b"Content-Length: %d" % len(body)]
    return b"\r\n".join([*lines, b"", body])


async def ask(proxy: RunningProxy, path: bytes, body: bytes, *fields: bytes) -> Answer:
    return await proxy.ask(b"POST " + path, *fields, body=body)


async def recorded(
    answers: Sequence[bytes], requests: Sequence[tuple[bytes, ...]], delivery: str = "buffer"
) -> CassetteStore:
    """A store with requests (a body and header fields each) and these answers to them."""
    options = ProxyOptions(max_body=8 * MIB, body_idle_s=10, delivery=delivery)  # type: ignore[arg-type]
    peer = Peer()
    for answer in answers:
        peer.then(answer)
    async with peer, running_proxy(peer.url, options=options) as proxy:
        for number, (body, *fields) in enumerate(requests):
            live = await ask(proxy, b"/%d" % number, body, *fields)
            assert (live.status, live.outcome) == (200, b"recorded")
        large = max(map(len, answers)) > LARGE_BODY
        return proxy.store if large else await written_and_read(proxy.store)


def held(secret: bytes) -> bytes:
    """A text with a secret between blanks."""
    return b"take " + secret + b" now"


def sizes(texts: Sequence[bytes]) -> list[int]:
    return [len(text) for text in texts]


@pytest.mark.parametrize("delivery", ["buffer", "stream"])
@FORMATS
async def test_a_replayed_answer_with_a_secret_can_be_parsed(name: str, delivery: str) -> None:
    form = BINARY_FORMATS[name]
    # The secrets begin at each place of a group in base64.
    keys = [held(TOKEN), held(JWT), b"", held(TOKEN) + b"!", held(JWT)]
    texts = [b"a", *keys, b"end", b"HF_TOKEN=Zk3vQ9xT2mB7 \n"]
    body = form.write(texts)
    store = await recorded([sized(body, form.media_type)], [(b"ask",)], delivery)

    async with running_proxy(NOWHERE, mode="replay", store=store) as proxy:
        answer = await ask(proxy, b"/0", b"ask")

    replayed = form.read(answer.body)
    assert len(answer.body) == len(body)
    assert sizes(replayed) == sizes(texts)
    assert [replayed[at] for at in (0, 3, 6)] == [b"a", b"", b"end"]
    assert replayed[1] + b"!" == replayed[4]
    assert replayed[2] == replayed[5]
    assert replayed[1].startswith(b"take REDACTED.github-token-")
    assert replayed[7].startswith(b"HF_TOKEN=RED.")


@FORMATS
async def test_a_request_with_a_secret_is_found_by_that_secret_alone(name: str) -> None:
    form = BINARY_FORMATS[name]
    fields = typed(form.media_type)
    requests = [(form.write([b"a", held(secret), b"end"]), *fields) for secret in (TOKEN, JWT)]
    store = await recorded([OK] * 2, requests)

    async with running_proxy(NOWHERE, mode="replay", store=store) as proxy:
        outcomes = [
            (await ask(proxy, b"/0", form.write([b"a", held(secret), b"end"]), *fields)).outcome
            for secret in (TOKEN, OTHER, TOKEN)
        ]
        outcomes.append((await ask(proxy, b"/1", *requests[1])).outcome)
        bodies = [exchange.request.body for exchange in await proxy.recorded()]

    assert outcomes == [b"replayed", b"miss", b"replayed", b"replayed"]
    assert [len(body) for body in bodies] == [len(body) for body, *_ in requests]
    assert [sizes(form.read(body)) for body in bodies] == [
        [1, len(held(TOKEN)), 3],
        [1, len(held(JWT)), 3],
    ]


@pytest.mark.parametrize("name", [name for name in BINARY_FORMATS if name != "zip"])
async def test_the_key_of_a_header_that_the_body_repeats_may_be_another_of_its_length(
    name: str,
) -> None:
    # In a zip archive the checksum differs too.
    form = BINARY_FORMATS[name]

    def request(key: bytes) -> tuple[bytes, ...]:
        body = form.write([b"a", held(key), b"end"])
        return (body, *typed(form.media_type), b"X-Api-Key: " + key)

    store = await recorded([OK], [request(TOKEN)])

    async with running_proxy(NOWHERE, mode="replay", store=store) as proxy:
        outcomes = [(await ask(proxy, b"/0", *request(key))).outcome for key in (TOKEN, OTHER)]

    assert outcomes == [b"replayed", b"replayed"]


async def test_a_token_of_a_binary_answer_is_known_wherever_the_client_sends_it() -> None:
    form = BINARY_FORMATS["gRPC-web"]
    json = b"Content-Type: application/json"

    def requests(token: bytes) -> list[tuple[bytes, ...]]:
        return [
            (b"login",),
            (b'{"session":"%b","page":1}' % token, json),
            (b'{"input":"my token is %b"}' % token, json, b"Authorization: Bearer " + token),
            (form.write([token, b"x"]), *typed(form.media_type)),
        ]

    store = await recorded([sized(form.write([TOKEN]), form.media_type)], requests(TOKEN))

    async with running_proxy(NOWHERE, mode="replay", store=store) as proxy:
        login = await ask(proxy, b"/0", b"login")
        (token,) = form.read(login.body)
        outcomes = [
            (await ask(proxy, b"/%d" % number, *request)).outcome
            for number, request in enumerate(requests(token))
        ]

    assert token != TOKEN
    assert outcomes == [b"replayed"] * 4


async def test_each_part_of_a_multipart_body_is_text_or_not_by_itself() -> None:
    form = BINARY_FORMATS["tar"]
    file = form.write([b"GITHUB_TOKEN=" + TOKEN, b"hello"])
    head = b"Content-Disposition: form-data; name="
    body = b"\r\n".join(
        [
            b"--x",
            head + b'"note"',
            b"",
            b"take " + TOKEN,
            b"--x",
            head + b'"file"; filename="a.tar"',
            b"Content-Type: application/x-tar",
            b"",
            file,
            b"--x",
            head + b'"message"; filename="m"',
            b"Content-Type: application/x-protobuf",
            b"",
            BINARY_FORMATS["protobuf"].write([TOKEN]),
            b"--x--",
            b"",
        ]
    )
    fields = (b"Content-Type: multipart/form-data; boundary=x",)
    store = await recorded([OK], [(body, *fields)])

    async with running_proxy(NOWHERE, mode="replay", store=store) as proxy:
        same = await ask(proxy, b"/0", body, *fields)
        other = await ask(proxy, b"/0", body.replace(TOKEN, OTHER), *fields)
        (exchange,) = await proxy.recorded()
    _, note, archive, message, _ = exchange.request.body.split(b"--x")

    assert (same.outcome, other.outcome) == (b"replayed", b"miss")
    assert b"take REDACTED.github-token." in note
    assert len(archive.partition(b"\r\n\r\n")[2]) == len(file) + 2
    assert sizes(BINARY_FORMATS["protobuf"].read(message.partition(b"\r\n\r\n")[2][:-2])) == [
        len(TOKEN)
    ]


async def test_base64_of_a_binary_message_in_json_is_decoded_as_before() -> None:
    form = BINARY_FORMATS["Avro"]
    # One octet is between the secrets: they share a group in base64.
    texts = [b"a", held(TOKEN + b"\n" + JWT + b";" + TOKEN), b"end"]
    body = b'{"data":"%b"}' % base64.b64encode(form.write(texts))
    store = await recorded([sized(body, b"application/json")], [(body, *typed(b"text/plain"))])

    async with running_proxy(NOWHERE, mode="replay", store=store) as proxy:
        answer = await ask(proxy, b"/0", body, *typed(b"text/plain"))

    assert answer.outcome == b"replayed"
    assert len(answer.body) == len(body)
    octets = base64.b64decode(answer.body[9:-2], validate=True)
    assert TOKEN not in octets
    assert JWT not in octets
    assert sizes(octets.split(b"end")) == sizes(form.write(texts).split(b"end"))


async def test_a_short_secret_in_base64_is_found_by_whoever_does_not_know_that_it_is_one() -> None:
    secret = b"Zk3vQ9xT2mB7pL"
    body = b'{"note":"%b"}' % base64.b64encode(b"\0\1the login is " + secret + b" for now")
    fields = typed(b"application/json")
    store = await recorded([OK], [(body, *fields, b"X-Api-Key: " + secret)])

    async with running_proxy(NOWHERE, mode="replay", store=store) as proxy:
        outcomes = [
            (await ask(proxy, b"/0", asked, *fields)).outcome
            for asked in (body, body.replace(b"WmszdlE", b"WmszdlF"))
        ]
        (exchange,) = await proxy.recorded()

    assert len(exchange.request.body) == len(body)
    assert exchange.request.body != body
    assert outcomes == [b"replayed", b"miss"]


async def test_a_large_archive_keeps_its_lengths() -> None:
    form = BINARY_FORMATS["tar"]
    texts = [random.Random(7).randbytes(MIB), b"KEY=" + TOKEN, b"end"]
    body = form.write(texts)
    store = await recorded([sized(body, form.media_type)], [(body, *typed(form.media_type))])

    async with running_proxy(NOWHERE, mode="replay", store=store) as proxy:
        same = await ask(proxy, b"/0", body, *typed(form.media_type))
        other = await ask(proxy, b"/0", body.replace(TOKEN, OTHER), *typed(form.media_type))

    assert (same.outcome, other.outcome) == (b"replayed", b"miss")
    assert sizes(form.read(same.body)) == sizes(texts)
    assert TOKEN not in same.body


def of_earlier_version(exchange: Interaction, body: bytes) -> Interaction:
    """A recording as versions made it whose placeholders kept no length."""
    redactor = Redactor("run").of_earlier_versions
    plain = replace(exchange.request, body=body)
    return replace(exchange, request=redactor.request(plain))


@pytest.mark.parametrize("media_type", [b"application/x-tar", b"multipart/form-data; boundary=x"])
async def test_a_recording_with_a_placeholder_of_another_length_is_found(
    media_type: bytes,
) -> None:
    body = BINARY_FORMATS["tar"].write([b"KEY=" + TOKEN, b"end"])
    if media_type.startswith(b"multipart"):
        head = b'--x\r\nContent-Disposition: form-data; name="f"; filename="f.tar"\r\n\r\n'
        body = head + body + b"\r\n--x--\r\n"
    fields = typed(media_type)
    store = await recorded([OK], [(body, *fields)])
    stored = await store.load("default", writable=False)
    assert stored is not None
    (exchange,) = stored.interactions
    assert isinstance(exchange, Interaction)
    older = of_earlier_version(exchange, body)
    assert len(older.request.body) < len(exchange.request.body)
    await store.save("default", replace(stored, interactions=(older,)))

    async with running_proxy(NOWHERE, mode="replay", store=store) as proxy:
        outcomes = [
            (await ask(proxy, b"/0", body.replace(TOKEN, key), *fields)).outcome
            for key in (TOKEN, OTHER)
        ]

    assert outcomes == [b"replayed", b"miss"]


async def test_a_large_recording_with_a_placeholder_of_another_length_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    archive = BINARY_FORMATS["tar"].write([random.Random(7).randbytes(MIB), b"KEY=" + TOKEN])
    fields = typed(b"application/x-tar")
    as_now = Redactor.stream
    with monkeypatch.context() as earlier:
        earlier.setattr(Redactor, "stream", lambda self, _: as_now(self, b"text/plain"))
        store = await recorded([sized(archive, b"")], [(archive, *fields)])

    async with running_proxy(NOWHERE, mode="replay", store=store) as proxy:
        outcomes = [
            (await ask(proxy, b"/0", archive.replace(TOKEN, key), *fields)).outcome
            for key in (TOKEN, OTHER)
        ]
        (exchange,) = await proxy.recorded()

    assert exchange.request.file is not None
    assert exchange.request.file.size != len(archive)
    assert outcomes == [b"replayed", b"miss"]


def test_a_binary_message_of_a_websocket_session_keeps_its_lengths() -> None:
    form = BINARY_FORMATS["MessagePack"]
    message = WebSocketMessage(form.write([b"a", TOKEN, b"end"]), binary=True)
    line = session_line(message, by_client=False)
    head = ResponseHead(200, headers=((b"content-type", b"application/x-ndjson"),))

    body = Redactor("run").response(Response(head, body=line + line)).body
    octets = base64.b64decode(json.loads(body.splitlines()[1])["service_binary"])

    assert len(octets) == len(message.data)
    assert form.read(octets)[1].startswith(b"REDACTED.github-token-")


class Chance:
    """Texts and secrets drawn at random, the same in each run."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def texts(self) -> tuple[list[bytes], set[bytes]]:
        """Texts to write, and the secrets in them."""
        texts, secrets = [], set()
        for _ in range(self._random.randint(1, 8)):
            secret = self.secret()
            around = self._random.choice(
                [
                    b" %b ",
                    b" %b\n",
                    b"key: %b ",
                    b"API_KEY=%b\n",
                    b"https://h/x?sig=%b&y=1",
                    b"{%b}",
                ]
            )
            if self._random.random() < 0.3:
                texts.append(self._letters(self._random.randint(0, 90)))
            else:
                texts.append(around % secret)
                secrets.add(secret)
        return texts, secrets

    def secret(self) -> bytes:
        return self._random.choice(
            [
                b"ghp_" + self._letters(36),
                b"AKIA" + self._letters(16).upper(),
                b"sk-ant-api03-" + self._letters(self._random.randint(40, 90)),
                JWT,
            ]
        )

    def form(self) -> BinaryFormat:
        return BINARY_FORMATS[self._random.choice([*BINARY_FORMATS])]

    def _letters(self, count: int) -> bytes:
        drawn = self._random.choices(string.ascii_letters + string.digits[2:8], k=count)
        return "".join(drawn).encode()


async def test_random_messages_keep_the_length_of_each_field() -> None:
    chance = Chance(52)
    drawn = [(chance.form(), *chance.texts()) for _ in range(150)]
    messages = [form.write(texts) for form, texts, _ in drawn]
    answers = [
        sized(message, form.media_type)
        for (form, _, _), message in zip(drawn, messages, strict=True)
    ]
    requests = [
        (message, *typed(form.media_type))
        for (form, _, _), message in zip(drawn, messages, strict=True)
    ]
    store = await recorded(answers, requests)

    async with running_proxy(NOWHERE, mode="replay", store=store) as proxy:
        for number, (form, texts, secrets) in enumerate(drawn):
            answer = await ask(proxy, b"/%d" % number, *requests[number])

            assert answer.outcome == b"replayed"
            assert len(answer.body) == len(messages[number])
            assert sizes(form.read(answer.body)) == sizes(texts)
            assert find_secrets(answer.body, KnownValues()) == []
            assert not any(secret in b"".join(form.read(answer.body)) for secret in secrets)
        bodies = [exchange.request.body for exchange in await proxy.recorded()]
    assert [sizes(form.read(body)) for (form, _, _), body in zip(drawn, bodies, strict=True)] == [
        sizes(texts) for _, texts, _ in drawn
    ]
