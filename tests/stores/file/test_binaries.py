"""Large binary bodies of a cassette: in files of their own, whole for whoever loads it."""

import base64
import json
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tapeway.core.json_text import Json
from tapeway.core.model.cassette import Recording, StoredCassette
from tapeway.core.model.messages import WEBSOCKET, ChunkTimes, Response, ResponseHead
from tapeway.core.websocket.messages import WebSocketMessage
from tapeway.core.websocket.session_lines import read_session, session_line
from tapeway.errors import CassetteCorrupt
from tapeway.formats.cassette_file import JSON, YAML, Serializer
from tapeway.formats.native.assets import LARGE_BINARY
from tapeway.server.websocket.connection import message_head
from tapeway.stores.file import offline
from tapeway.stores.file.store import FileStore
from tests.stores.large_bodies import assets, contents
from tests.stores.recordings import HEAD, exchanges, recording

PICTURE = b"\x89PNG\xff" + random.Random(14).randbytes(LARGE_BINARY)
OTHER = b"\xff" + PICTURE


@pytest.fixture(params=[JSON, YAML], ids=["json", "yaml"])
async def store(request: pytest.FixtureRequest, root: Path) -> AsyncIterator[FileStore]:
    serializer: Serializer = request.param
    store = FileStore(root, serializer)
    await store.open()
    yield store
    await store.close()


def picture(index: int, *supersedes: int, body: bytes = PICTURE) -> Recording:
    made = recording(index, *supersedes)
    head = ResponseHead(200, "OK", ((b"Content-Type", b"image/png"),))
    answer = Response(head, body, 1.5)
    asked = replace(made.exchange.request, route="openai")
    return replace(made, interaction=replace(made.exchange, request=asked, response=answer))


async def test_a_binary_body_is_in_a_file_of_its_own_and_comes_back_whole(
    store: FileStore, root: Path
) -> None:
    small = PICTURE[: LARGE_BINARY - 1]
    await store.append("x", HEAD, picture(0))
    await store.append("x", HEAD, picture(1, body=small))
    await store.append("x", HEAD, picture(2))
    await store.release("x")

    assert contents(await store.load("x", writable=False)) == [PICTURE, small, PICTURE]
    (name,) = assets(root)
    lines = (root / "x.assets" / name).read_text().splitlines()
    assert base64.b64decode("".join(lines)) == PICTURE
    assert {len(line) for line in lines[:-1]} == {76}
    (file,) = [path for path in root.glob("x.*") if path.is_file() and path.suffix != ".lock"]
    assert name.replace("-", ":") in file.read_text()


async def test_a_binary_part_of_a_form_is_in_a_file_of_its_own(
    store: FileStore, root: Path
) -> None:
    form = (
        b"--cut\r\nContent-Disposition: form-data; name=a\r\n\r\nshort\r\n"
        b"--cut\r\nContent-Disposition: form-data; name=b\r\n\r\n" + PICTURE + b"\r\n--cut--\r\n"
    )
    made = picture(0, body=b"ok")
    kind = (b"Content-Type", b"multipart/form-data; boundary=cut")
    asked = replace(made.exchange.request, headers=(kind,), body=form)
    await store.append("x", HEAD, replace(made, interaction=replace(made.exchange, request=asked)))
    await store.release("x")

    found = await store.load("x", writable=False) or StoredCassette(HEAD)
    assert exchanges(found.interactions)[0].request.body == form
    assert len(assets(root)) == 1
    assert sum([path.stat().st_size for path in root.glob("x.[jy]*")]) < 4000


def session(index: int, *messages: WebSocketMessage) -> Recording:
    made = recording(index)
    lines = [session_line(message, by_client=not number) for number, message in enumerate(messages)]
    head = message_head(ResponseHead(101, "Switching Protocols"))
    chunk_times = ChunkTimes([(number * 2.5, len(line)) for number, line in enumerate(lines)])
    whole = Response(head, b"".join(lines)).with_arrivals(chunk_times)
    asked = replace(made.exchange.request, method=WEBSOCKET, route="openai")
    about: dict[str, Json] = {"websocket": {"session": "plain"}}
    item = replace(made.exchange, request=asked, response=whole, metadata=about)
    return replace(made, interaction=item)


AUDIO = base64.b64encode(PICTURE).decode()
REFERENCE = f'{{"__agenttape_asset__":"sha256:{"a" * 64}","encoding":"base64","size":3}}'


async def test_audio_of_a_session_is_in_files_of_its_own_and_comes_back_byte_for_byte(
    store: FileStore, root: Path
) -> None:
    said = session(
        0,
        WebSocketMessage(b'{"type":"append","audio": "%b"}' % AUDIO.encode()),
        WebSocketMessage(PICTURE, binary=True),
        WebSocketMessage(OTHER, binary=True),
        WebSocketMessage(PICTURE[: LARGE_BINARY - 1], binary=True),
        WebSocketMessage(b"%b!" % AUDIO.encode()),
    )
    await store.append("x", HEAD, said)
    await store.release("x")

    found = await store.load("x", writable=False) or StoredCassette(HEAD)
    assert exchanges(found.interactions)[0].response == said.exchange.response
    held = [(root / "x.assets" / asset).read_bytes() for asset in assets(root)]
    assert sorted(held) == sorted([PICTURE, OTHER])
    (file,) = [path for path in root.glob("x.*") if path.is_file() and path.suffix != ".lock"]
    assert AUDIO not in file.read_text().replace(AUDIO + "!", "")

    # A recording that is added leaves these files as they are.
    await store.load("x", writable=True)
    await store.append("x", HEAD, picture(1))
    await store.release("x")
    found = await store.load("x", writable=False) or StoredCassette(HEAD)
    assert exchanges(found.interactions)[0].response == said.exchange.response


@pytest.mark.parametrize(
    "text",
    [
        f'{{"type":"x","audio":"{AUDIO[:-2]}B="}}',
        json.dumps({"text": f'"{AUDIO}"'}),
        json.dumps({"text": f'x"{AUDIO}'}),
        f'{{"type":"x","audio":{REFERENCE}}}',
        REFERENCE,
        json.dumps({"text": REFERENCE}),
    ],
    ids=["not canonical", "quoted", "a quote before", "a reference", "alone", "in a text"],
)
@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
async def test_a_message_that_looks_like_base64_or_a_reference_stays_as_it_is(
    store: FileStore, root: Path, text: str, binary: bool
) -> None:
    messages = (
        WebSocketMessage(text.encode(), binary=binary),
        WebSocketMessage(OTHER, binary=True),
    )
    await store.append("x", HEAD, session(0, *messages))
    await store.release("x")

    found = await store.load("x", writable=False) or StoredCassette(HEAD)
    (item,) = exchanges(found.interactions)
    lines = [(0.0, piece) for piece in item.response.pieces()]
    assert tuple(message.message for message in read_session(lines).messages) == messages


async def test_a_lost_file_of_a_session_is_named(store: FileStore, root: Path) -> None:
    await store.append("x", HEAD, session(0, WebSocketMessage(PICTURE, binary=True)))
    await store.release("x")
    (root / "x.assets" / assets(root)[0]).unlink()

    with pytest.raises(CassetteCorrupt, match="beside the cassette is missing: restore it"):
        await store.load("x", writable=True)


async def test_a_binary_that_is_replaced_takes_its_file_with_it(
    store: FileStore, root: Path
) -> None:
    await store.append("x", HEAD, picture(0))
    await store.release("x")
    before = assets(root)

    await store.load("x", writable=True)
    await store.append("x", HEAD, picture(1, 0, body=OTHER))
    await store.release("x")

    assert contents(await store.load("x", writable=False)) == [OTHER]
    assert len(assets(root)) == 1
    assert assets(root) != before


async def test_a_cassette_that_is_saved_whole_keeps_its_binaries_outside(
    store: FileStore, root: Path
) -> None:
    made = (picture(0).interaction, picture(1, body=OTHER).interaction)
    await store.save("x", StoredCassette(HEAD, made))
    await store.save("x", StoredCassette(HEAD, made[1:]))
    await store.release("x")

    assert contents(await store.load("x", writable=False)) == [OTHER]
    assert len(assets(root)) == 1


async def test_a_missing_file_is_named_and_nothing_is_overwritten(
    store: FileStore, root: Path
) -> None:
    await store.append("x", HEAD, picture(0))
    await store.release("x")
    (root / "x.assets" / assets(root)[0]).unlink()

    with pytest.raises(CassetteCorrupt, match="beside the cassette is missing: restore it"):
        await store.load("x", writable=True)


async def test_a_rewrite_leaves_no_file_of_what_it_took_out(store: FileStore, root: Path) -> None:
    await store.append("x", HEAD, picture(0))
    await store.release("x")

    with offline.claimed(root, "x") as claim:
        document: dict[str, Any] = {**next(claim.cassette.interactions).document}
        short: dict[str, Any] = {"status_code": 200, "headers": {}, "text": "gone"}
        claim.replace(claim.cassette.head, [{**document, "response": short}])

    assert contents(await store.load("x", writable=False)) == [b"gone"]
    assert assets(root) == []


async def test_a_binary_is_there_once_after_a_crash_between_file_and_journal_and_an_edit(
    files: FileStore, root: Path
) -> None:
    await files.append("x", HEAD, picture(0))
    journal = (root / "x.journal").read_bytes()
    await files.release("x")
    # The file was renamed, its journal came back without the commit, and somebody edited the file.
    (root / "x.journal").write_bytes(journal)
    value = json.loads((root / "x.json").read_text())
    value["meta"]["edited"] = True
    (root / "x.json").write_text(json.dumps(value))

    assert contents(await files.load("x", writable=True)) == [PICTURE]
