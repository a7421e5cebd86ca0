"""Collects what the page asks the admin API for, up to a size: misses whole, hits cut to a head."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote

from tapeway.core.json_text import Json, dump
from tapeway.errors import TapewayError

_PAGE = 1000
_MOST_CHARACTERS = 2000
"""Of each text of a hit, in its view."""
_MOST_ITEMS = 50
"""Of its chunks and events."""
_WHOLE = ("status", "report", "cassettes")

Call = Callable[[str, dict[str, object]], Json]
"""GETs a path below `/api/v1/` with a query. Raises TapewayError."""


class Caller(Protocol):
    """Calls the admin API; `deck.admin_client.AdminClient` does."""

    def call(self, method: str, path: str, body: object = None, **query: object) -> Any: ...


@dataclass(slots=True)
class CollectedRun:
    """The answers by their path, the journal's entries, and how many requests have no details."""

    answers: dict[str, Json] = field(default_factory=dict)
    entries: list[Json] = field(default_factory=list)
    left_out: int = 0
    size: int = 0

    def add(self, path: str, answer: Json, most: int | None = None) -> bool:
        """Keep an answer, unless there would be more than `most` bytes then."""
        size = len(path) + len(dump(answer))
        if most is not None and self.size + size > most:
            return False
        self.answers[path] = answer
        self.size += size
        return True


def collect(call: Call, most: int) -> CollectedRun:
    """What is known of the requests so far, in at most so many bytes. Raises TapewayError."""
    found = CollectedRun()
    for path in _WHOLE:
        found.add(path, call(path, {}))
    found.entries = list(_entries(call))
    found.size += len(dump(found.entries))
    found.add("recordings", {"recordings": []})
    # What is left out first are the details of hits.
    for entry in sorted(found.entries, key=_is_hit):
        if isinstance(entry, dict):
            found.left_out += not _add(found, call, entry, most)
    return found


def _is_hit(entry: Json) -> bool:
    return isinstance(entry, dict) and entry.get("outcome") != "miss"


def _entries(call: Call) -> Iterator[Json]:
    after: Json = None
    while True:
        page = call("journal", {"limit": _PAGE, "after": after, "gist": True})
        if not isinstance(page, dict) or not isinstance(page["entries"], list):
            return
        yield from page["entries"]
        if (after := page["next"]) is None:
            return


def _add(found: CollectedRun, call: Call, entry: dict[str, Json], most: int) -> bool:
    """Add the details of a request; False if there is no room for them."""
    try:
        path = f"journal/{quote(str(entry['id']), safe='')}"
        whole = call(path, {})
        if not found.add(path, whole, most):
            return False
        index = entry.get("interaction")
        if isinstance(whole, dict) and isinstance(nearest := whole.get("nearest"), dict):
            index = nearest["index"]
        if entry.get("interaction") is None:
            called = f"{path}/call"
            found.add(called, cut(call(called, {})), most)
        if index is None:
            return True
        view = f"cassettes/{quote(str(entry['cassette']), safe='')}/interactions/{index}/view"
        return view in found.answers or found.add(view, cut(call(view, {})), most)
    except TapewayError:
        # It has left the journal, or its cassette has been deleted.
        return False


def cut(value: Json) -> Json:
    """An answer with its long texts and lists cut to a head; bodies say so in `cut`."""
    if isinstance(value, str):
        return value[:_MOST_CHARACTERS]
    if isinstance(value, list):
        return [cut(each) for each in value[:_MOST_ITEMS]]
    if not isinstance(value, dict):
        return value
    found = {name: cut(each) for name, each in value.items()}
    text = value.get("text")
    if "cut" in value and isinstance(text, str) and len(text) > _MOST_CHARACTERS:
        found |= {"cut": True, "kind": "text"}
    for name in ("chunks", "events"):
        items, left = value.get(name), value.get(f"{name}_left_out")
        if isinstance(items, list) and isinstance(left, int):
            found[f"{name}_left_out"] = left + max(0, len(items) - _MOST_ITEMS)
    return found
