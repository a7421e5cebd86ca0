"""The recordings of a large cassette stay in its file, and are read there as they were loaded."""

import asyncio
import gc
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from tapeway.cooperative import WORK_S
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.cassette.recording_keys import recording_key
from tapeway.core.matching.rules import Rules, meta_with_rules
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction, Interaction
from tapeway.core.model.lazy_interaction import LazyInteraction
from tapeway.core.model.messages import Failure, Request, Response, ResponseHead
from tapeway.errors import CassetteCorrupt, CassetteEdited
from tapeway.formats.native import document
from tapeway.stores.file import snapshot
from tapeway.stores.file.cassette import FileCassette
from tapeway.stores.file.recording_file import RecordingFile
from tapeway.stores.support import durable_files
from tapeway.stores.support.resident_recordings import ResidentRecordings

HEAD = CassetteHead("2026-01-01", "run")
JSON = ((b"Content-Type", b"application/json"),)
FIRST = Interaction(
    0,
    Request("openai", "POST", "/v1/x", JSON, b'{"n": 0}', "https://up"),
    Response(ResponseHead(200, "OK", JSON), b'{"answer": 0}', at_ms=3.0),
    latency_ms=4.5,
    tags=("a",),
    metadata={"note": [1]},
)


@pytest.fixture(autouse=True)
def small_files_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "SMALLEST_FILE", 1)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The indexes of the recordings whose answers or requests are read, in order."""
    found: list[int] = []
    read = RecordingFile.read

    def noted(self: RecordingFile, item: LazyInteraction, name: str) -> object:
        found.append(item.index)
        return read(self, item, name)

    monkeypatch.setattr(RecordingFile, "read", noted)
    return found


def recording(number: int) -> Interaction:
    request = replace(FIRST.request, body=b'{"n": %d}' % number)
    response = replace(FIRST.response, body=b'{"answer": %d}' % number)
    return replace(FIRST, index=number, request=request, response=response)


def saved(folder: Path, *items: AnyInteraction, head: CassetteHead = HEAD) -> Path:
    file = folder / "x.json"
    file.write_bytes(document.save(StoredCassette(head, items or (FIRST,))))
    return file


def load(folder: Path, resident: ResidentRecordings | None = None) -> StoredCassette:
    cassette = FileCassette(folder, "x", resident=resident or ResidentRecordings())
    found = cassette.load(writable=False)
    cassette.release()
    assert found is not None
    return found


def in_file(items: object) -> Iterator[LazyInteraction]:
    assert isinstance(items, tuple)
    for item in items:
        assert isinstance(item, LazyInteraction)
        yield item


def test_recordings_are_those_that_were_written(tmp_path: Path, reads: list[int]) -> None:
    made = [recording(number) for number in range(20)]
    text = saved(tmp_path, *made).read_bytes()
    items = load(tmp_path).interactions

    assert len([*in_file(items)]) == 20
    assert reads == []
    assert items == document.load(text).interactions
    assert reads == [number for number in range(20) for _ in range(2)], "the request, and the rest"
    assert document.save(StoredCassette(HEAD, items)) == text


LAYOUTS: dict[str, Callable[[Any], bytes]] = {
    "json.dumps": lambda value: json.dumps(value).encode(),
    "json.dumps as it is": lambda value: json.dumps(value, ensure_ascii=False).encode(),
    "compact": orjson.dumps,
    "four blanks": lambda value: json.dumps(value, indent=4).encode(),
    "tabs and other line ends": lambda value: (
        json.dumps(value, indent="\t").replace("\n", "\r\n").encode()
    ),
    "sorted": lambda value: json.dumps(value, sort_keys=True, indent=2).encode(),
    "the list first": lambda value: json.dumps(
        {"interactions": value["interactions"], **value}
    ).encode(),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_recordings_stay_in_a_file_that_another_tool_wrote(
    tmp_path: Path, reads: list[int], layout: str
) -> None:
    said = replace(FIRST.response, body='{"text": "caf\xe9 \u2028 \U0001f600 \\"]}[{"}'.encode())
    items = [replace(recording(number), response=said) for number in range(4)]
    file = saved(tmp_path, *items)
    before = load(tmp_path)
    wanted = [document.encode(interaction) for interaction in before.interactions]
    reads.clear()
    file.write_bytes(LAYOUTS[layout](orjson.loads(file.read_bytes())))

    found = load(tmp_path)

    assert [item.index for item in in_file(found.interactions)] == [0, 1, 2, 3]
    assert found.head == before.head
    assert reads == []
    # Told by the contents, which are read now.
    assert [document.encode(interaction) for interaction in found.interactions] == wanted
    assert reads != []


@pytest.mark.parametrize(
    "change",
    [
        (b"]}", b",]}"),
        (b'"interactions": [', b'"interactions": [ 1,'),
        (b'"interactions": [', b'"interactions": [], "interactions": ['),
        (b'"n": 0', b'"n": 00'),
        (b"]}", b"]"),
        (b"]}", b"]} x"),
        (b"}, {", b"} {"),
    ],
)
def test_a_fault_in_any_layout_is_found(tmp_path: Path, change: tuple[bytes, bytes]) -> None:
    file = saved(tmp_path, *[recording(number) for number in range(3)])
    text = json.dumps(orjson.loads(file.read_bytes())).encode()
    before, _, after = text.rpartition(change[0])
    assert before + after
    file.write_bytes(before + change[1] + after)

    with pytest.raises(CassetteCorrupt, match="json"):
        load(tmp_path)


def test_only_what_is_whole_by_itself_stays_in_the_file(tmp_path: Path) -> None:
    prompt = b'{"prompt": "%b", "n": %d}'
    words = b"word " * 400
    items: list[AnyInteraction] = [
        replace(FIRST, request=replace(FIRST.request, body=prompt % (words, 0))),
        replace(FIRST, request=replace(FIRST.request, body=prompt % (words, 1))),
        replace(FIRST, response=replace(FIRST.response, head=ResponseHead(206))),
        replace(FIRST, failure=Failure("cut", "it broke off")),
        replace(FIRST, request=replace(FIRST.request, route=""), stored_keys=("k",)),
        ForeignInteraction(0, {"kind": "tool", "request": {}, "response": 1}),
    ]
    file = saved(tmp_path, *items)
    assert b"as in #0" in file.read_bytes()

    found = load(tmp_path).interactions
    assert [isinstance(item, LazyInteraction) for item in found] == [True] + [False] * 5
    assert found == document.load(file.read_bytes()).interactions


def test_what_comes_after_a_reference_is_read_in_its_own_place(tmp_path: Path) -> None:
    prompt = b'{"prompt": "%b", "n": %d}'
    words = b"word " * 400
    items = [recording(number) for number in range(9)]
    for number in (2, 5):
        body = prompt % (words, number)
        items[number] = replace(items[number], request=replace(FIRST.request, body=body))
    file = saved(tmp_path, *items)
    assert b"as in #2" in file.read_bytes()

    found = load(tmp_path)
    filed_ones = [isinstance(interaction, LazyInteraction) for interaction in found.interactions]
    assert filed_ones == [number != 5 for number in range(9)]
    assert found.interactions == document.load(file.read_bytes()).interactions
    assert sorted(found.keys) == [0, 1, 2, 3, 4, 6, 7, 8]


def test_large_bodies_and_assets_do_not_stay_in_the_file(tmp_path: Path) -> None:
    writer = FileCassette(tmp_path, "x", resident=ResidentRecordings())
    writer.load(writable=True)
    body = writer.keep([b"x" * 10])
    large = replace(FIRST, response=Response(ResponseHead(200), file=body))
    writer.save(StoredCassette(HEAD, (large, recording(1))))
    writer.release()

    first, second = load(tmp_path).interactions
    assert not isinstance(first, LazyInteraction)
    assert isinstance(second, LazyInteraction)


@pytest.mark.parametrize("rules", [Rules(), Rules(ignore=("body.n",))])
def test_match_keys_are_known_before_anything_is_read(
    rules: Rules, tmp_path: Path, reads: list[int]
) -> None:
    made = [recording(number) for number in range(5)]
    saved(tmp_path, *made, head=replace(HEAD, meta=meta_with_rules({}, rules)))
    stored = load(tmp_path)
    index = CassetteIndex("x", stored, take=0)

    keys = [recording_key(interaction, rules) for interaction in made]
    assert [index.key_of(number) for number in range(5)] == keys
    asked = index.asked(replace(FIRST.request, body=b'{"n": 1, "m": 2}'))
    assert index.find(asked, ["openai"]) is None, "nor does a miss read any"
    assert reads == []


def test_a_miss_reads_what_may_hold_credentials_and_no_other(
    tmp_path: Path, reads: list[int]
) -> None:
    secret = b'{"n": 2, "api_key": "REDACTED.0123456789abcdef"}'
    made = [recording(number) for number in range(5)]
    for number, interaction in enumerate(made):
        body = secret if number == 2 else b'{"n": %d, "max_tokens": 5}' % number
        made[number] = replace(interaction, request=replace(FIRST.request, body=body))
    saved(tmp_path, *made)
    index = CassetteIndex("x", load(tmp_path), take=0)

    asked = index.asked(replace(FIRST.request, body=b'{"n": 2, "api_key": "another"}'))
    found = index.find(asked, ["openai"])
    assert found is not None
    assert index.indexes(found.key) == (2,)
    assert reads == [2]


def test_those_read_last_are_in_memory(tmp_path: Path, reads: list[int]) -> None:
    saved(tmp_path, *[recording(number) for number in range(4)])
    size = len(document.save(StoredCassette(HEAD, (recording(0),)))) + 600
    items = [*in_file(load(tmp_path, ResidentRecordings(most_bytes=2 * size)).interactions)]

    for number in (0, 1, 0, 1, 2, 2, 1, 0):
        assert items[number].response.body == b'{"answer": %d}' % number
    assert reads == [0, 1, 2, 0]


def test_the_file_may_be_replaced_or_removed_meanwhile(tmp_path: Path) -> None:
    file = saved(tmp_path, recording(0), recording(1))
    first, second = in_file(load(tmp_path).interactions)

    other = tmp_path / "other"
    other.write_text("{}")
    other.rename(file)
    assert first.response.body == b'{"answer": 0}'
    file.unlink()
    assert second.response.body == b'{"answer": 1}'


@pytest.mark.parametrize("edit", ["changed", "cut", "emptied"])
def test_a_change_in_place_is_an_error_and_no_answer(edit: str, tmp_path: Path) -> None:
    file = saved(tmp_path, recording(0), recording(1))
    first, second = in_file(load(tmp_path).interactions)
    text = file.read_bytes()

    changed = {"changed": text.replace(b'"answer": 1', b'"answer": 7'), "cut": text[:-40]}
    file.write_bytes(changed.get(edit, b""))

    with pytest.raises(CassetteEdited, match=r"x\.json was changed in place"):
        _ = second.response
    if edit != "emptied":
        assert first.response.body == b'{"answer": 0}'
    file.write_bytes(text)
    assert second.response.body == b'{"answer": 1}'


def held_open(folder: Path) -> list[str]:
    """The files of a folder that this process holds open."""
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    found = [os.readlink(link) for link in links if os.path.islink(link)]
    return [text for text in found if text.startswith(f"{folder}/")]


def test_the_file_is_closed_with_the_last_recording(tmp_path: Path) -> None:
    saved(tmp_path, recording(0), recording(1))
    resident = ResidentRecordings(most_files=1)
    first, second = in_file(load(tmp_path, resident).interactions)
    assert len(held_open(tmp_path)) == 1

    del first
    assert second.response.body == b'{"answer": 1}'
    assert not any(
        isinstance(interaction, LazyInteraction)
        for interaction in load(tmp_path, resident).interactions
    )
    assert len(held_open(tmp_path)) == 1
    del second
    gc.collect()
    assert held_open(tmp_path) == []
    assert [*in_file(load(tmp_path, resident).interactions)]


def test_a_file_that_cannot_be_held_open_is_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path)

    def refused(*_: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(snapshot, "open_file", refused)
    resident = ResidentRecordings(most_files=1)
    assert type(load(tmp_path, resident).interactions[0]) is Interaction
    monkeypatch.undo()
    monkeypatch.setattr(snapshot, "SMALLEST_FILE", 1)
    assert [*in_file(load(tmp_path, resident).interactions)]


def test_a_file_that_is_another_one_by_now_is_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = saved(tmp_path)
    opened = durable_files.open_file

    def replaced(folder: int, name: str, flags: int, place: str) -> int:
        other = tmp_path / "other"
        other.write_bytes(file.read_bytes())
        other.rename(file)
        return opened(folder, name, flags, place)

    monkeypatch.setattr(snapshot, "open_file", replaced)
    assert type(load(tmp_path).interactions[0]) is Interaction


def test_a_small_file_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(saved(tmp_path).read_bytes())
    monkeypatch.setattr(snapshot, "SMALLEST_FILE", size + 1)
    assert type(load(tmp_path).interactions[0]) is Interaction
    monkeypatch.setattr(snapshot, "SMALLEST_FILE", size)
    assert [*in_file(load(tmp_path).interactions)]


def test_a_file_with_a_fault_is_read_as_a_whole_and_keeps_no_keys(tmp_path: Path) -> None:
    file = saved(tmp_path, recording(0), recording(1))
    file.write_bytes(file.read_bytes().replace(b'"index": 1', b'"index": 0'))

    found = load(tmp_path)
    assert found.keys == {}
    assert [type(interaction) for interaction in found.interactions] == [Interaction, Interaction]


def test_a_cassette_is_written_from_its_own_file(tmp_path: Path) -> None:
    file = saved(tmp_path, *[recording(number) for number in range(9)])
    text = file.read_bytes()
    writer = FileCassette(tmp_path, "x", resident=ResidentRecordings(most_bytes=1))
    found = writer.load(writable=True)
    assert found is not None

    writer.save(replace(found, interactions=found.interactions[:8]))
    writer.release()
    assert file.read_bytes() == document.save(StoredCassette(HEAD, load(tmp_path).interactions))
    assert load(tmp_path).interactions == document.load(text).interactions[:8]


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long others had their turn, which they have at every second step."""
    found: list[float] = []
    looks = count()
    clock = SimpleNamespace(sleep=found.append, monotonic=lambda: next(looks) * 0.6 * WORK_S)
    monkeypatch.setattr("tapeway.cooperative.time", clock)
    return found


def test_a_thread_that_loads_or_reads_many_lets_others_run(
    tmp_path: Path, slept: list[float]
) -> None:
    saved(tmp_path, *[recording(number) for number in range(8)])
    items = load(tmp_path).interactions
    assert len(slept) == 4

    for item in items:
        assert isinstance(item, LazyInteraction)
        _ = item.response
    assert len(slept) == 8


async def test_who_answers_clients_does_not_sleep(tmp_path: Path, slept: list[float]) -> None:
    saved(tmp_path, *[recording(number) for number in range(8)])
    items = await asyncio.to_thread(load, tmp_path)
    slept.clear()

    for exchange in in_file(items.interactions):
        _ = exchange.response
    assert slept == []
