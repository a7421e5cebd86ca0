"""The statements of an operation, in words that each driver writes in a dialect.

An operation is a generator: the operation yields statements, is sent the rows, and returns a
result. Operations know neither threads nor event loops: a text serves both databases. Operations
are written for READ COMMITTED: between two statements other transactions may commit, unless the
operation holds a lock.

In the text of a statement `$1` is the first argument, `@table` a table of the store, and `:word` a
difference between databases; `DIALECT` of each driver lists these words.
"""

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

Row = Sequence[Any]


class Wanted(Enum):
    """What a statement gives back."""

    ROWS = "rows"
    COUNT = "count"
    """How many rows it changed."""
    NOTHING = "nothing"
    """It is run once for each row of arguments."""


class Statement(NamedTuple):
    """A statement and its arguments."""

    sql: str
    args: Sequence[Any]
    wanted: Wanted
    quick: bool = False
    """Whether the tables need not survive a crash. Before the first quick statement of an operation
    all earlier statements are made durable, and only quick statements follow.
    """


class Computation(NamedTuple):
    """Something to compute that may take long, such as decoding a page of recordings."""

    work: Callable[[], Any]


Op = Generator[Statement | Computation, Any, T]


def rows(sql: str, *args: Any) -> Op[Sequence[Row]]:
    result: Sequence[Row] = yield Statement(sql, args, Wanted.ROWS)
    return result


def row(sql: str, *args: Any) -> Op[Row | None]:
    result: Sequence[Row] = yield Statement(sql, args, Wanted.ROWS)
    return result[0] if result else None


def run(sql: str, *args: Any) -> Op[int]:
    changed: int = yield Statement(sql, args, Wanted.COUNT)
    return changed


def each(sql: str, many: Sequence[Sequence[Any]]) -> Op[None]:
    """Run a statement once for each of these rows of arguments."""
    if many:
        yield Statement(sql, many, Wanted.NOTHING)


def quick_rows(sql: str, *args: Any) -> Op[Sequence[Row]]:
    result: Sequence[Row] = yield Statement(sql, args, Wanted.ROWS, quick=True)
    return result


def quick_row(sql: str, *args: Any) -> Op[Row | None]:
    result: Sequence[Row] = yield Statement(sql, args, Wanted.ROWS, quick=True)
    return result[0] if result else None


def quick_run(sql: str, *args: Any) -> Op[int]:
    changed: int = yield Statement(sql, args, Wanted.COUNT, quick=True)
    return changed


def computed(work: Callable[[], T]) -> Op[T]:
    result: T = yield Computation(work)
    return result


_WORD = re.compile(r"(?<!:):([a-z_]+)(?:\((\$\d+)\))?")


def render(sql: str, dialect: Mapping[str, str]) -> str:
    """A statement's text with each `:word` as the dialect writes it; `{}` there is the argument."""
    return _WORD.sub(lambda match: dialect[match[1]].replace("{}", match[2] or ""), sql)
