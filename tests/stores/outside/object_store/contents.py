"""The contents of a log's objects, and the cassette of a log."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace

from tapeway.core.json_text import Json, dump
from tapeway.core.model.cassette import CassetteHead, Recording, StoredCassette
from tapeway.core.model.interaction import AnyInteraction
from tapeway.errors import CassetteCorrupt
from tapeway.stores.support.columns import head_of, head_text, interaction_of, recording_text
from tapeway.stores.support.recording_order import RecordingOrder

REMOVED = b""
_LINES = (b"", b'[true, "", "", []]', b"")
"""The lines that an empty object stands for."""


def content_of(
    writer: bytes, head: CassetteHead, recordings: Iterable[Recording], *, whole: bool = False
) -> bytes:
    """An object with these recordings. After a `whole` one the earlier objects do not count."""
    texts, added = [], list[Json]()
    for recording in recordings:
        texts.append(recording_text(recording))
        added.append([recording.interaction.index, *recording.supersedes])
    about = dump([whole, head.created_at, head.run_id, added])
    return b"\n".join([writer, about, head_text(head), *texts])


def whole_content(writer: bytes, cassette: StoredCassette) -> bytes:
    """An object with a whole cassette, whose recordings are numbered by position."""
    items = [replace(item, index=at) for at, item in enumerate(cassette.interactions)]
    return content_of(writer, cassette.head, map(Recording, items), whole=True)


def cassette_of(log: Mapping[int, bytes], place: str) -> StoredCassette | None:
    """The cassette of a log, None where it was removed. Raises CassetteCorrupt."""
    head, order = None, RecordingOrder[AnyInteraction]()
    for number, content in log.items():
        try:
            _, about, meta, *texts = content.split(b"\n") if content else _LINES
            whole, created_at, run_id, added = json.loads(about)
        except ValueError as exc:
            raise CassetteCorrupt(f"{place}, object {number}: {exc}: restore it") from exc
        if whole:
            head, order = None, RecordingOrder[AnyInteraction]()
        if content and head is None:
            head = head_of(created_at, run_id, meta, place)
        for (index, *superseded), text in zip(added, texts, strict=True):
            order.add(index, interaction_of(text, index, place), superseded)
    items = tuple([item for _, item in order.items()])
    return None if head is None else StoredCassette(head, items)
