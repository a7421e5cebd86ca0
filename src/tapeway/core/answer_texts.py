"""What recorded answers said, to tell what a client sent back of it."""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import orjson

from tapeway.core.json_text import Json
from tapeway.core.model import Interaction

_PIECE = 8
"""Shorter texts stand in a long answer by chance, and count only where one value is just that."""


class AnswerTexts:
    """The texts in the answers of one take."""

    def __init__(self, calls: Sequence[Interaction]) -> None:
        self._calls = calls
        self._texts = lru_cache(maxsize=None)(_texts)

    def said(self, text: str, *, before: int) -> bool:
        """Whether an answer recorded before this index said it, whole or over a stream's events."""
        for call in self._calls:
            if call.index >= before:
                break
            leaves, running = self._texts(call.response.body)
            if text in leaves or (len(text) >= _PIECE and text in running):
                return True
        return False


def _texts(body: bytes) -> tuple[frozenset[str], str]:
    """Every text in an answer, and those under one key run together as a stream's pieces belong."""
    by_key: dict[str, list[str]] = {}
    for value in _values(body):
        for key, text in _leaves("", value):
            by_key.setdefault(key, []).append(text)
    leaves = frozenset(text for texts in by_key.values() for text in texts)
    return leaves, "\0".join("".join(texts) for texts in by_key.values())


def _values(body: bytes) -> Iterator[Json]:
    try:
        yield orjson.loads(body)
    except orjson.JSONDecodeError:
        for line in body.splitlines():
            try:
                yield orjson.loads(line.removeprefix(b"data:"))
            except orjson.JSONDecodeError:
                continue


def _leaves(key: str, value: Json) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from _leaves(name, each)
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(key, each)
