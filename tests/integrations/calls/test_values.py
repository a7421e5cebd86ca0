"""Python values as JSON, as AgentTape writes them, and back."""

import asyncio
import json
import math
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from agenttape.engine import _to_jsonable as to_jsonable
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from tapeway.integrations.calls.values import (
    NotRecordable,
    hashed_json,
    json_to_value,
    value_to_json,
)


class Colour(Enum):
    RED = "red"


class Model(BaseModel):
    day: date = date(2026, 1, 2)
    inner: dict[str, int] = {"a": 1}


@dataclass
class Plain:
    one: int = 1
    _two: int = 2
    more: set[int] = field(default_factory=lambda: {3, 1})


class Told:
    def to_dict(self) -> dict[str, int]:
        return {"x": 1}


class Refusing:
    """Cannot be dumped, and has a public attribute all the same."""

    def __init__(self) -> None:
        self.shown = "yes"

    def model_dump(self, **_: object) -> object:
        raise RuntimeError


@pytest.mark.parametrize(
    "value",
    [
        *(Colour.RED, {Colour.RED: [Colour.RED]}, date(2026, 1, 2), datetime(2026, 1, 2, 3), time(4)),
        *(Decimal("2.50"), UUID(int=5), {3, 1, 2}, frozenset({"b", "a"}), (1, (2, [3]))),
        *(Model(), Plain(), Told(), SimpleNamespace(a=SimpleNamespace(b=1)), {1: {None: True}}),
        *(Path("a/b"), 2**70, -0.0, 1e-07, "", "é😀\u2028", None, True, [], {}),
    ],
)  # fmt: skip
def test_a_value_is_written_as_agenttape_writes_it(value: object) -> None:
    assert json.dumps(value_to_json(value)) == json.dumps(to_jsonable(value))


def test_an_object_that_cannot_be_dumped_becomes_its_attributes() -> None:
    assert value_to_json(Refusing()) == {"shown": "yes"}


def test_a_value_that_contains_itself_is_cut_off() -> None:
    loop: list[Any] = [1]
    loop.append({"again": loop})

    assert value_to_json(loop) == [1, {"again": "<cycle>"}]
    twice = [1]
    assert value_to_json([twice, twice]) == [[1], [1]]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8")) | st.binary(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3),
        max_leaves=12,
    )
)  # fmt: skip
def test_json_and_bytes_come_back_as_they_were(value: object) -> None:
    assert repr(json_to_value(json.loads(json.dumps(value_to_json(value))))) == repr(value)


def test_nan_and_infinities_come_back() -> None:
    back = json_to_value(value_to_json([math.nan, -math.inf]))

    assert isinstance(back, list)
    assert math.isnan(back[0])
    assert back[1] == -math.inf


def test_bytes_are_hashed_as_text() -> None:
    assert hashed_json(value_to_json({"a": [b"h\xc3\xa9", b"\xff"], "n": math.inf})) == {
        "a": ["hé", "\ufffd"],
        "n": math.inf,
    }


@pytest.mark.parametrize("said", ["c2FpZCREDACTED", 5, None])
def test_an_object_that_only_looks_like_bytes_stays_an_object(said: object) -> None:
    alike: Any = {"__agenttape_bytes__": said}

    assert json_to_value(alike) == hashed_json(alike) == alike


async def _given() -> AsyncGenerator[int]:
    yield 1


def _yielding() -> Iterator[int]:
    yield 1


def _deep(levels: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(levels):
        found = [found]
    return found


class Half(BaseModel):
    text: str = "\ud800"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_yielding, "a generator can be read once only: make a list of it"),
        (lambda: {"a": [map(str, [1])]}, "a map can be read once only"),
        (_given, "a async_generator can be read once only"),
        (lambda: "\ud800", "half of a surrogate pair"),
        (lambda: {"\udfff": 1}, "half of a surrogate pair"),
        (lambda: SimpleNamespace(a=Half()), "half of a surrogate pair"),
        (lambda: _deep(5000), "nested too deep"),
    ],
)
def test_a_value_that_could_not_come_back_is_refused(make: Callable[[], object], said: str) -> None:
    with pytest.raises(NotRecordable, match=said):
        value_to_json(make())


async def test_an_awaitable_is_refused() -> None:
    waiting = asyncio.sleep(0)
    with pytest.raises(NotRecordable, match="a coroutine has to be awaited: use acall"):
        value_to_json(waiting)
    await waiting
