"""A value that is replaced in one place is replaced wherever it stands again, and replays all the same.

An agent reads `.env`, the model repeats a value of it, and the next turn carries both.
"""

import asyncio
import base64
import gzip
import json
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from tapeway.body_files import PIECE
from tapeway.core.model.control import Mode
from tapeway.core.model.messages import LARGE_BODY
from tapeway.ports import CassetteStore
from tapeway.stores.file.store import FileStore
from tapeway.stores.postgres.store import PostgresStore
from tapeway.stores.sqlite.store import SqliteStore
from tests.cli.invocation import run_tapeway
from tests.server.in_process_proxy import HitsOn, RunningProxy, running_proxy
from tests.stores.postgres_server import fresh
from tests.support.raw_client import Answer

TOKEN = "Zq7TnV4mXc9LpR2sWk8HdY3b"
PASSWORD = "pW9xR3tLz5Qv7Ym2Kd"
CHAT = b"POST /v1/chat/completions"
JSON = b"Content-Type: application/json"

Message = dict[str, str]
OpenStore = Callable[[], CassetteStore]

READ = [
    f"HF_TOKEN={TOKEN}\nDEBUG=1\n",
    f"config.ini: {TOKEN}, postgres://app:{PASSWORD}@db/x",
    f"grep: {PASSWORD} {TOKEN}",
]
"""What the agent's tool reads, turn by turn."""
SAID = [
    f"The token in your .env is {TOKEN}, and it works.",
    f"Run curl -H 'X-Own: {TOKEN}' now.",
    f"The password {PASSWORD} is in two files.",
]
"""What the model answers."""


@asynccontextmanager
async def answering(reply: Callable[[str, bytes], str | None]) -> AsyncIterator[str]:
    """The URL of a model that answers so, whole or in pieces of three letters."""

    async def answer(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        text = reply(request.path, body) or "ok"
        if b'"stream": true' not in body:
            message = {"role": "assistant", "content": text}
            return web.json_response({"choices": [{"index": 0, "message": message}]})
        pieces = [text[at : at + 3] for at in range(0, len(text), 3)]
        events = [{"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in pieces]
        lines = [f"data: {json.dumps(event)}\n\n" for event in events]
        return web.Response(
            text="".join([*lines, "data: [DONE]\n\n"]), content_type="text/event-stream"
        )

    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


def said_by(answer: Answer) -> str:
    """The model's text."""
    assert answer.status == 200, answer.body
    if answer.body.startswith(b"{"):
        return str(json.loads(answer.body)["choices"][0]["message"]["content"])
    events = [line[6:] for line in answer.body.decode().splitlines() if line.startswith("data: {")]
    return "".join([json.loads(event)["choices"][0]["delta"]["content"] for event in events])


async def ask(proxy: RunningProxy, messages: Sequence[Message], *, stream: bool) -> str:
    body = json.dumps({"model": "m", "stream": stream, "messages": [*messages]}).encode()
    return said_by(await proxy.ask(CHAT, JSON, body=body))


async def converse(proxy: RunningProxy, *, stream: bool) -> list[list[Message]]:
    """Run the agent; returns the messages of each request."""
    messages: list[Message] = [{"role": "user", "content": "Check my keys."}]
    asked = []
    for read in READ:
        messages = [*messages, {"role": "tool", "content": read}]
        asked.append(messages)
        text = await ask(proxy, messages, stream=stream)
        messages = [*messages, {"role": "assistant", "content": text}]
    return asked


def model(_: str, body: bytes) -> str | None:
    value = json.loads(body)
    return SAID[len(value["messages"]) // 2 - 1]


@pytest.fixture(params=["folder", "sqlite"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> OpenStore:
    if request.param == "folder":
        return lambda: FileStore(tmp_path / "cassettes")
    return lambda: SqliteStore(tmp_path / "c.db")


@asynccontextmanager
async def proxying(opened: OpenStore, mode: Mode, url: str) -> AsyncIterator[RunningProxy]:
    """A proxy that knows no value from before."""
    async with running_proxy(url, mode=mode, store=opened()) as proxy:
        yield proxy
        await proxy.proxy.wait_until_idle()


def stored_in(tmp_path: Path) -> bytes:
    return b"".join([file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("mode", ["record", "auto"])
async def test_an_agents_run_replays_in_any_order_and_stores_no_value_it_read(
    mode: Mode, stream: bool, opened: OpenStore, tmp_path: Path
) -> None:
    async with answering(model) as url, proxying(opened, mode, url) as proxy:
        asked = await converse(proxy, stream=stream)
        recorded = await proxy.recorded()
    # As a client reads it: pieces of a stream put together.
    texts = [
        said_by(Answer(b"HTTP/1.1 200 OK\r\n\r\n", [item.response.body], True)) for item in recorded
    ]
    shown = stored_in(tmp_path) + "".join(texts).encode()

    assert TOKEN.encode() not in shown
    assert PASSWORD.encode() not in shown
    assert all("REDACTED." in text for text in texts)
    # The very requests, in order and out of order, each in a process that has learnt nothing.
    for order in ([0, 1, 2], [2, 0, 1]):
        async with proxying(opened, "replay", url) as proxy:
            for number in order:
                assert await ask(proxy, asked[number], stream=stream) == texts[number]
    # An agent that goes on with what the replay says: placeholders, beside the values it reads.
    async with proxying(opened, "replay", url) as proxy:
        replayed = await converse(proxy, stream=stream)
        assert "REDACTED." in replayed[-1][2]["content"]
        assert proxy.journal.counts == {"replayed": 3}


async def test_a_different_value_in_a_text_is_another_request(opened: OpenStore) -> None:
    async with answering(model) as url:
        async with proxying(opened, "record", url) as proxy:
            asked = await converse(proxy, stream=False)
        other = json.loads(json.dumps(asked[1]).replace(TOKEN, TOKEN[::-1]))
        async with proxying(opened, "replay", url) as proxy:
            body = json.dumps({"model": "m", "stream": False, "messages": other}).encode()
            assert (await proxy.ask(CHAT, JSON, body=body)).status == 400


PART = f'--b\r\nContent-Disposition: form-data; name="note"\r\n\r\nuse {TOKEN} now\r\n--b--\r\n'.encode()
PLACES: dict[str, tuple[bytes, bytes, bytes]] = {
    "path": (b"GET /files/%b/x" % TOKEN.encode(), b"Accept: */*", b""),
    "query": (b"GET /files?of=%b&n=1" % TOKEN.encode(), b"Accept: */*", b""),
    "form": (
        b"POST /form",
        b"Content-Type: application/x-www-form-urlencoded",
        b"note=it+is+%b&n=1" % TOKEN.encode(),
    ),
    "part": (b"POST /part", b"Content-Type: multipart/form-data; boundary=b", PART),
    "text": (b"POST /text", b"Content-Type: text/plain", b"is it %b?" % TOKEN.encode()),
    "xml": (b"POST /xml", b"Content-Type: text/xml", b"<a><b>%b</b></a>" % TOKEN.encode()),
    "octets": (
        b"POST /octets",
        b"Content-Type: application/octet-stream",
        b"\x00\xff%b\x00\xfe" % TOKEN.encode(),
    ),
    "JSON": (b"POST /json", JSON, json.dumps({"a": [{"b": f"({TOKEN})"}]}).encode()),
    "JSON in JSON": (
        b"POST /inner",
        JSON,
        json.dumps({"arguments": json.dumps({"cmd": f'echo "{TOKEN}"'})}).encode(),
    ),
    "base64": (
        b"POST /base64",
        JSON,
        json.dumps({"data": base64.b64encode(f"see {TOKEN} there".encode()).decode()}).encode(),
    ),
    "name": (b"POST /name", JSON, json.dumps({"by_key": {TOKEN: {"n": 1}}}).encode()),
    "name of a parameter": (b"GET /files?%b=1" % TOKEN.encode(), b"Accept: */*", b""),
    "UTF-16": (
        b"POST /wide",
        b"Content-Type: text/plain; charset=utf-16",
        b"\xff\xfe" + f"is it {TOKEN}?".encode("utf-16-le"),
    ),
}


def _with_other_token(body: bytes) -> bytes:
    for codec in ("utf-8", "utf-16-le"):
        body = body.replace(TOKEN.encode(codec), TOKEN[::-1].encode(codec))
    return body


@pytest.mark.parametrize("place", PLACES)
async def test_a_value_taught_by_one_recording_is_replaced_in_the_next_and_the_next_replays_alone(
    place: str, opened: OpenStore, tmp_path: Path
) -> None:
    line, header, body = PLACES[place]
    async with answering(lambda path, _: f"echo {TOKEN}" if path != "/teach" else None) as url:
        async with proxying(opened, "record", url) as proxy:
            taught = json.dumps({"text": f"export HF_TOKEN={TOKEN}"}).encode()
            assert (await proxy.ask(b"POST /teach", JSON, body=taught)).status == 200
            assert (await proxy.ask(line, header, body=body)).status == 200
        async with proxying(opened, "replay", url) as proxy:
            replayed = await proxy.ask(line, header, body=body)
            other = await proxy.ask(
                line.replace(TOKEN.encode(), TOKEN[::-1].encode()),
                header,
                body=_with_other_token(body),
            )

    assert replayed.status == 200, replayed.body
    assert b"echo REDACTED." in replayed.body
    assert other.status == 400 or place == "base64"
    stored = stored_in(tmp_path)
    assert TOKEN.encode() not in stored
    assert base64.b64encode(f"see {TOKEN}".encode())[:-4] not in stored


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("mode", ["record", "auto"])
async def test_a_later_process_recognises_the_values_of_the_placeholders_in_requests(
    mode: Mode, stream: bool, opened: OpenStore, tmp_path: Path
) -> None:
    taught = json.dumps({"text": f"export HF_TOKEN={TOKEN}"}).encode()
    body = json.dumps({"stream": stream, "messages": [{"content": f"cat: {TOKEN}"}]}).encode()
    plain = json.dumps({"stream": stream, "messages": [{"content": "say it"}]}).encode()
    async with answering(lambda *_: f"It is {TOKEN}, I think.") as url:
        async with proxying(opened, "record", url) as proxy:
            await proxy.ask(b"POST /teach", JSON, body=taught)
        for asked in (body, plain):
            async with proxying(opened, mode, url) as proxy:
                assert TOKEN in said_by(await proxy.ask(CHAT, JSON, body=asked))
        async with proxying(opened, "replay", url) as proxy:
            said = [said_by(await proxy.ask(CHAT, JSON, body=asked)) for asked in (body, plain)]

    assert TOKEN.encode() not in stored_in(tmp_path)
    assert [text.startswith("It is REDACTED.hf_token.") for text in said] == [True, True]


@pytest.mark.parametrize("hits", ["front", "ordinary", "nowhere"])
@pytest.mark.parametrize(
    "target", ["/files/%s/x", "/files?of=%s&n=1", "/files?%s=1", "/files/a%%20%s", "/x?u=a%%2F%s"]
)
async def test_a_later_process_shows_no_value_in_the_path_of_a_replay(
    target: str, hits: HitsOn, opened: OpenStore
) -> None:
    taught = json.dumps({"text": f"export HF_TOKEN={TOKEN}"}).encode()
    line = b"GET " + (target % TOKEN).encode()
    async with answering(lambda *_: None) as url:
        async with proxying(opened, "record", url) as proxy:
            await proxy.ask(b"POST /teach", JSON, body=taught)
            await proxy.ask(line)
        async with running_proxy(url, mode="replay", store=opened(), hits=hits) as proxy:
            for _ in range(2):
                assert (await proxy.ask(line)).outcome == b"replayed"
            paths = [entry.path for entry in proxy.journal]

    assert len(paths) == 2
    assert all(TOKEN not in path and "REDACTED.hf_token." in path for path in paths), paths


async def test_what_an_answer_teaches_is_replaced_in_its_own_request(
    opened: OpenStore, tmp_path: Path
) -> None:
    body = json.dumps({"stream": False, "messages": [{"content": f"cat: {TOKEN}"}]}).encode()
    async with answering(lambda *_: f"Then export HF_TOKEN={TOKEN} and go on.") as url:
        for mode in ("record", "record", "auto", "replay"):
            async with proxying(opened, mode, url) as proxy:
                assert (await proxy.ask(CHAT, JSON, body=body)).status == 200
                assert (await proxy.ask(CHAT, JSON, body=body)).status == 200
                recorded = await proxy.recorded()
    assert TOKEN.encode() not in stored_in(tmp_path)
    assert {item.request.body.count(b"REDACTED.") for item in recorded} == {1}


@pytest.mark.parametrize("before", ["in clear", "in part"])
async def test_a_new_recording_replaces_one_that_shows_a_value_not_known_then(
    before: str, opened: OpenStore, tmp_path: Path
) -> None:
    alone = json.dumps({"stream": False, "messages": [{"content": f"cat: {TOKEN}"}]}).encode()
    teaching = json.dumps({"text": f"export HF_TOKEN={TOKEN}"}).encode()
    if before == "in part":
        alone = json.dumps({"a": f"{alone!r}", "password": PASSWORD}).encode()
    said = iter(["first", "second", "third", "fourth"])
    async with answering(lambda *_: next(said)) as url:
        async with proxying(opened, "record", url) as proxy:
            await proxy.ask(CHAT, JSON, body=alone)
            await proxy.ask(b"POST /teach", JSON, body=teaching)
            assert TOKEN.encode() in b"".join(
                [item.request.body for item in await proxy.recorded()]
            )
            await proxy.broker.rewind()
            await proxy.ask(CHAT, JSON, body=alone)
            recorded = await proxy.recorded()
        async with proxying(opened, "replay", url) as proxy:
            assert said_by(await proxy.ask(CHAT, JSON, body=alone)) == "third"
    assert len(recorded) == 2
    assert TOKEN.encode() not in b"".join([item.request.body for item in recorded])


PAD = b"line of a log: nothing happened\n" * 40_000
"""More than a body in memory may have."""
BOUNDARY = b"--b\r\nContent-Disposition: form-data; name=%b\r\n\r\n"
LARGE = {
    "text": (b"Content-Type: text/plain", b"%b\nis it %%b?\n%b" % (PAD, PAD)),
    "begins": (b"Content-Type: text/plain", b"%%b\n%b" % PAD),
    "ends": (b"Content-Type: text/plain", b"%b %%b" % PAD),
    "octets": (b"Content-Type: application/octet-stream", b"%b\x00\xff%%b\x00\xfe" % PAD),
    "pieces": (
        b"Content-Type: text/plain",
        b"%b %%b\n%b" % ((b"log\n" * PIECE)[: PIECE - 12], PAD),
    ),
    "protobuf": (b"Content-Type: application/protobuf", b"%b\x1a\x18%%b2\x04name" % PAD),
    "no type": (b"Accept: */*", b"%b\x01\x18%%b\x1a" % PAD),
    "parts": (
        b"Content-Type: multipart/form-data; boundary=b",
        b"".join([BOUNDARY % b"a", PAD, b"\r\n", BOUNDARY % b"k", b"%b", b"\r\n--b--\r\n"]),
    ),
}
"""Where a value may stand in a body of more than 1 MiB."""


@pytest.mark.parametrize("place", LARGE)
async def test_a_later_process_replaces_a_recorded_value_in_a_large_body_and_another_finds_it(
    place: str, opened: OpenStore, tmp_path: Path
) -> None:
    header, pattern = LARGE[place]
    body, other = pattern % TOKEN.encode(), pattern % TOKEN[::-1].encode()
    taught = json.dumps({"text": f"export HF_TOKEN={TOKEN}"}).encode()
    async with answering(lambda path, _: f"echo {TOKEN}" if path == "/up" else None) as url:
        async with proxying(opened, "record", url) as proxy:
            await proxy.ask(b"POST /teach", JSON, body=taught)
        for mode in ("record", "auto"):
            async with proxying(opened, mode, url) as proxy:
                assert (await proxy.ask(b"POST /up", header, body=body)).status == 200
        async with proxying(opened, "replay", url) as proxy:
            replayed = await proxy.ask(b"POST /up", header, body=body)
            missed = await proxy.ask(b"POST /up", header, body=other)

    assert replayed.status == 200, replayed.body
    assert b"echo REDACTED." in replayed.body
    assert missed.status == 400
    assert TOKEN.encode() not in stored_in(tmp_path)


@pytest.mark.parametrize("where", ["before", "behind"])
async def test_what_a_large_body_teaches_is_replaced_in_all_of_it_and_in_later_requests(
    where: str, opened: OpenStore, tmp_path: Path
) -> None:
    told, plain = b"export HF_TOKEN=%b\n" % TOKEN.encode(), b"cat: %b\n" % TOKEN.encode()
    body = b"".join([plain, PAD, told] if where == "before" else [told, PAD, plain])
    text = b"Content-Type: text/plain"
    async with answering(lambda *_: None) as url:
        for line, asked in ((b"POST /up", body), (b"POST /next", plain)):
            async with proxying(opened, "record", url) as proxy:
                assert (await proxy.ask(line, text, body=asked)).status == 200
        async with proxying(opened, "replay", url) as proxy:
            assert (await proxy.ask(b"POST /up", text, body=body)).status == 200
            assert (await proxy.ask(b"POST /next", text, body=plain)).status == 200

    assert TOKEN.encode() not in stored_in(tmp_path)


@pytest.mark.parametrize("size", ["small", "large"])
async def test_what_an_answer_teaches_is_replaced_in_its_own_large_request(
    size: str, opened: OpenStore, tmp_path: Path
) -> None:
    body, text = b"%b\ncat: %b\n" % (PAD, TOKEN.encode()), b"Content-Type: text/plain"
    padding = PAD.decode() if size == "large" else ""
    said = f"{TOKEN}, {padding} so export HF_TOKEN={TOKEN} and go on."

    async with answering_text(said) as url:
        for mode in ("record", "record", "auto", "replay"):
            async with proxying(opened, mode, url) as proxy:
                answer = await proxy.ask(b"POST /up", text, body=body)
                assert answer.status == 200
                assert TOKEN in answer.body.decode() or mode in ("auto", "replay")
                recorded = await proxy.recorded()
    assert len(recorded) == 1
    assert TOKEN.encode() not in stored_in(tmp_path)


async def test_a_token_of_an_answer_is_found_again_in_a_large_upload(
    opened: OpenStore, tmp_path: Path
) -> None:
    body, text = b"%b\nsession %b\n" % (PAD, TOKEN.encode()), b"Content-Type: text/plain"
    async with answering_text(json.dumps({"access_token": TOKEN}), "application/json") as url:
        async with proxying(opened, "record", url) as proxy:
            assert TOKEN.encode() in (await proxy.ask(b"POST /login")).body
            assert (await proxy.ask(b"POST /up", text, body=body)).status == 200
        async with proxying(opened, "replay", url) as proxy:
            assert (await proxy.ask(b"POST /up", text, body=body)).status == 200
    assert TOKEN.encode() not in stored_in(tmp_path)


async def test_a_large_body_is_found_whose_recording_knew_fewer_values(
    opened: OpenStore, tmp_path: Path
) -> None:
    told = b"export DB_PASSWORD=%b\n" % PASSWORD.encode()
    body, text = b"%b\n%b\n%b" % (told, PAD, TOKEN.encode()), b"Content-Type: text/plain"
    taught = json.dumps({"text": f"export HF_TOKEN={TOKEN}"}).encode()
    async with answering(lambda *_: None) as url:
        async with proxying(opened, "record", url) as proxy:
            assert (await proxy.ask(b"POST /up", text, body=body)).status == 200
            assert (await proxy.ask(b"POST /teach", JSON, body=taught)).status == 200
        async with proxying(opened, "replay", url) as proxy:
            assert (await proxy.ask(b"POST /up", text, body=body)).status == 200

    assert PASSWORD.encode() not in stored_in(tmp_path)


async def test_a_recording_without_the_names_of_its_placeholders_is_found_where_more_is_known(
    tmp_path: Path,
) -> None:
    told = b"export DB_PASSWORD=%b\n" % PASSWORD.encode()
    body, text = b"%b\n%b\n%b" % (told, PAD, TOKEN.encode()), b"Content-Type: text/plain"
    taught = json.dumps({"text": f"export HF_TOKEN={TOKEN}"}).encode()
    async with answering(lambda *_: None) as url:
        async with proxying(lambda: FileStore(tmp_path), "record", url) as proxy:
            assert (await proxy.ask(b"POST /up", text, body=body)).status == 200
            assert (await proxy.ask(b"POST /teach", JSON, body=taught)).status == 200
        file = tmp_path / "default.json"
        cassette = json.loads(file.read_bytes())
        # As an earlier version wrote it.
        assert cassette["interactions"][0]["request"]["body_file"].pop("placeholders")
        file.write_text(json.dumps(cassette))
        async with proxying(lambda: FileStore(tmp_path), "replay", url) as proxy:
            assert (await proxy.ask(b"POST /up", text, body=body)).status == 200


@pytest.mark.parametrize("begins", [b"", b"export DB_PASSWORD=%b\n" % PASSWORD.encode()])
async def test_a_new_recording_replaces_a_large_body_that_shows_a_value_not_known_then(
    begins: bytes, opened: OpenStore, tmp_path: Path
) -> None:
    body, text = b"%b%b\n%b" % (begins, PAD, TOKEN.encode()), b"Content-Type: text/plain"
    taught = json.dumps({"text": f"export HF_TOKEN={TOKEN}"}).encode()
    async with answering(lambda *_: None) as url:
        async with proxying(opened, "record", url) as proxy:
            assert (await proxy.ask(b"POST /up", text, body=body)).status == 200
            assert (await proxy.ask(b"POST /teach", JSON, body=taught)).status == 200
        async with proxying(opened, "record", url) as proxy:
            assert (await proxy.ask(b"POST /up", text, body=body)).status == 200
            recorded = await proxy.recorded()

    assert [item.request.target for item in recorded] == ["/up", "/teach"]
    assert TOKEN.encode() not in stored_in(tmp_path)


async def test_a_text_that_only_looks_like_a_placeholder_is_recorded(opened: OpenStore) -> None:
    body = json.dumps({"text": "see REDACTED.key.0aaaaaag"}).encode()
    async with answering(lambda *_: None) as url:
        for mode in ("record", "auto", "replay"):
            async with proxying(opened, mode, url) as proxy:
                assert (await proxy.ask(b"POST /up", JSON, body=body)).status == 200
                assert (await proxy.ask(b"POST /no", JSON, body=b"{}")).status in (200, 400)


async def test_a_large_body_without_its_value_is_found_where_there_is_no_service(
    opened: OpenStore,
) -> None:
    body, text = b"%b\ntoken: %b\n" % (PAD, TOKEN.encode()), b"Content-Type: text/plain"
    async with answering(lambda *_: None) as url, proxying(opened, "record", url) as proxy:
        assert (await proxy.ask(b"POST /up", text, body=body)).status == 200
    async with running_proxy(mode="auto", store=opened()) as proxy:
        assert (await proxy.ask(b"POST /up", text, body=body)).status == 200


async def test_a_copied_cassette_finds_a_large_body_with_a_value_that_nobody_knows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body, text = b"%b\nsession %b\n" % (PAD, TOKEN.encode()), b"Content-Type: text/plain"
    taught = json.dumps({"access_token": TOKEN})
    async with answering_text(taught, "application/json") as url:
        async with proxying(lambda: FileStore(tmp_path / "a"), "record", url) as proxy:
            assert (await proxy.ask(b"POST /login")).status == 200
            assert (await proxy.ask(b"POST /up", text, body=body)).status == 200
        for command in (
            ["scan", "default"],
            ["redact", "default"],
            ["convert", "default", f"sqlite:{tmp_path}/b.db#default"],
        ):
            store = ["--store", str(tmp_path / "a")]
            done = await asyncio.to_thread(run_tapeway, capsys, "cassette", *command, *store)
            assert done[0] == 0, done
        async with proxying(lambda: SqliteStore(tmp_path / "b.db"), "replay", url) as proxy:
            assert (await proxy.ask(b"POST /up", text, body=body)).status == 200


@pytest.mark.parametrize("kind", [b"text/plain", b"multipart/form-data; boundary=b"])
async def test_a_compressed_large_body_is_stored_decoded_and_found_however_it_is_compressed(
    kind: bytes, opened: OpenStore, tmp_path: Path
) -> None:
    noise = random.Random(5).randbytes(2**20).hex().encode()

    def packed(token: str, level: int) -> bytes:
        held = b"".join([BOUNDARY % b"a", noise, b"\r\n", BOUNDARY % b"k", b"%b\r\n--b--\r\n"])
        plain = (held if b"form" in kind else b"%b\ncat: %%b\n" % noise) % token.encode()
        return gzip.compress(plain, level)

    head = b"Content-Type: %b\r\nContent-Encoding: gzip" % kind
    taught = json.dumps({"text": f"export HF_TOKEN={TOKEN}"}).encode()
    assert len(packed(TOKEN, 9)) > LARGE_BODY
    async with answering(lambda *_: None) as url:
        async with proxying(opened, "record", url) as proxy:
            await proxy.ask(b"POST /teach", JSON, body=taught)
        async with proxying(opened, "record", url) as proxy:
            asked = await proxy.ask(b"POST /up", head, body=packed(TOKEN, 1))
            assert asked.status == 200
            request = (await proxy.recorded())[-1].request
        async with proxying(opened, "replay", url) as proxy:
            assert (await proxy.ask(b"POST /up", head, body=packed(TOKEN, 9))).status == 200
            other = await proxy.ask(b"POST /up", head, body=packed(TOKEN[::-1], 9))
            assert other.status == 400

    assert request.coding == b"gzip"
    assert request.file is not None
    assert request.file.size > len(noise)
    stored = stored_in(tmp_path)
    assert TOKEN.encode() not in stored
    assert packed(TOKEN, 1)[:1024] not in stored


async def test_another_instance_over_postgresql_replaces_what_it_never_looked_at(
    postgres_dsn: str,
) -> None:
    taught = json.dumps({"text": f"export HF_TOKEN={TOKEN}"}).encode()
    echo = json.dumps({"text": f"cat: {TOKEN}"}).encode()
    async with (
        fresh(postgres_dsn) as database,
        answering(lambda path, _: f"echo {TOKEN}" if path == "/next" else None) as url,
    ):
        async with proxying(lambda: PostgresStore(database), "record", url) as proxy:
            assert (await proxy.ask(b"POST /teach", JSON, body=taught)).status == 200
        async with proxying(lambda: PostgresStore(database), "record", url) as proxy:
            assert (await proxy.ask(b"POST /next", JSON, body=echo)).status == 200
            recorded = await proxy.recorded()
    assert len(recorded) == 2
    for item in recorded:
        assert TOKEN.encode() not in item.request.body + item.response.body


async def test_another_instance_over_postgresql_finds_a_large_body_with_a_value_it_never_met(
    postgres_dsn: str,
) -> None:
    body, text = b"%b\nsession %b\n" % (PAD, TOKEN.encode()), b"Content-Type: text/plain"
    other = body.replace(TOKEN.encode(), TOKEN[::-1].encode())
    async with (
        fresh(postgres_dsn) as database,
        answering_text(json.dumps({"access_token": TOKEN}), "application/json") as url,
    ):
        async with proxying(lambda: PostgresStore(database), "record", url) as proxy:
            assert (await proxy.ask(b"POST /login")).status == 200
            assert (await proxy.ask(b"POST /up", text, body=body)).status == 200
        async with proxying(lambda: PostgresStore(database), "replay", url) as proxy:
            assert (await proxy.ask(b"POST /up", text, body=other)).status == 400
            assert (await proxy.ask(b"POST /up", text, body=body)).status == 200


async def test_another_instance_over_postgresql_replaces_a_large_body_that_shows_a_value(
    postgres_dsn: str,
) -> None:
    body, text = b"%b\nsession %b\n" % (PAD, TOKEN.encode()), b"Content-Type: text/plain"
    taught = json.dumps({"text": f"export HF_TOKEN={TOKEN}"}).encode()
    async with fresh(postgres_dsn) as database, answering(lambda *_: None) as url:
        async with proxying(lambda: PostgresStore(database), "record", url) as proxy:
            assert (await proxy.ask(b"POST /up", text, body=body)).status == 200
            assert (await proxy.ask(b"POST /teach", JSON, body=taught)).status == 200
            await proxy.broker.rewind()
        async with proxying(lambda: PostgresStore(database), "record", url) as proxy:
            assert (await proxy.ask(b"POST /up", text, body=body)).status == 200
            assert len(await proxy.recorded()) == 2
        async with proxying(lambda: PostgresStore(database), "replay", url) as proxy:
            assert (await proxy.ask(b"POST /up", text, body=body)).status == 200


@asynccontextmanager
async def answering_text(text: str, content_type: str = "text/plain") -> AsyncIterator[str]:
    """The URL of a service that answers everything with a text."""

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(text=text, content_type=content_type)

    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()
