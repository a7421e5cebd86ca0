"""The recorded calls of a cassette: found by AgentTape's keys, each answering once and in order."""

import difflib
from collections.abc import Iterable, Mapping, Sequence

from tapeway.core.agenttape.key import ORDERED_KEY, agenttape_key
from tapeway.core.json_text import Json, dump
from tapeway.core.model.control import Repeats
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction
from tapeway.integrations.calls import values

_Document = Mapping[str, Json]
_Name = tuple[str, str, str]


def request_of(kind: str, name: str, args: _Document) -> dict[str, Json]:
    """The request of a call as AgentTape hashes and writes it."""
    if kind == "llm":
        return {"endpoint": name, **args}
    return {"name": name, "args": dict(args)}


def boundary_of(kind: str, name: str) -> str:
    """The boundary a call is recorded at; all LLM calls share one."""
    return "llm" if kind == "llm" else name


def key_of(request: Json, ignore: Iterable[str]) -> str:
    """AgentTape's key, "" for a request that AgentTape cannot hash."""
    try:
        return agenttape_key(values.hashed_json(request), ignore)
    except (UnicodeEncodeError, RecursionError):
        return ""


class CallSlots:
    """The recordings, with a note of which have answered."""

    def __init__(
        self, items: Iterable[AnyInteraction], ignore: Sequence[str], repeats: Repeats
    ) -> None:
        self._ignore = tuple(ignore)
        self._repeats = repeats
        self._documents: dict[int, _Document] = {}
        self._by_name: dict[_Name, list[int]] = {}
        self._used: dict[int, int] = {}
        for item in items:
            if isinstance(item, ForeignInteraction):
                self.add(item.index, item.document)

    def add(self, index: int, document: _Document, *, used: bool = False) -> None:
        """Add a recording; with `used`, the caller already got the result."""
        kind, at = str(document.get("kind")), document.get("boundary")
        boundary = at if isinstance(at, str) else kind
        stored = document.get("match_key")
        keys = {key_of(document.get("request"), self._ignore), stored} - {"", None}
        self._documents[index] = document
        for key in keys:
            self._by_name.setdefault((kind, boundary, str(key)), []).append(index)
        if used:
            self._used[index] = 1

    def remove(self, indexes: Iterable[int]) -> None:
        """Forget recordings that were replaced by others."""
        for index in indexes:
            del self._documents[index]
            for indexes_of_name in self._by_name.values():
                if index in indexes_of_name:
                    indexes_of_name.remove(index)

    def rewind(self) -> None:
        """Mark all recordings as unused."""
        self._used.clear()

    def next(self, kind: str, boundary: str, keys: Iterable[str]) -> _Document | None:
        """Take the next unused recording under one of these keys."""
        alike = self.alike(kind, boundary, (*keys, ORDERED_KEY))
        unused = [index for index in alike if index not in self._used]
        if not alike or (not unused and self._repeats == "miss"):
            return None
        if self._repeats == "first":
            index = alike[0]
        elif unused:
            index = unused[0]
        elif self._repeats == "cycle":
            index = min(alike, key=lambda recording: self._used[recording])
        else:
            index = alike[-1]
        self._used[index] = self._used.get(index, 0) + 1
        return self._documents[index]

    def alike(self, kind: str, boundary: str, keys: Iterable[str]) -> list[int]:
        """All recordings under one of these keys, in order."""
        named = [self._by_name.get((kind, boundary, key), []) for key in keys]
        return sorted({index for indexes in named for index in indexes})

    def nearest(self, kind: str, boundary: str, request: Json) -> tuple[int, _Document] | None:
        """The most similar recording of the kind, preferably of the same name."""
        of_kind = [
            (i, document) for i, document in self._documents.items() if document.get("kind") == kind
        ]
        named = [(i, document) for i, document in of_kind if document.get("boundary") == boundary]
        asked = dump(request).decode()
        return max(
            named or of_kind,
            key=lambda numbered: _likeness(asked, dump(numbered[1].get("request")).decode()),
            default=None,
        )


def _likeness(first: str, second: str) -> float:
    return difflib.SequenceMatcher(None, first[:2000], second[:2000]).quick_ratio()
