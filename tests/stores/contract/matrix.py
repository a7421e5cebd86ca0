"""The matrix of the contract suite: which store was shown to keep which promise.

Each test says in its report which promise it is about and of which store, so that the matrix can be
made wherever the reports come together, also from several processes. A hole is a promise that was
not shown for a store that makes it; in a run of the whole contract it fails the run.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent
"""Where the tests of the contract are."""

_PROPERTY = "contract"
_WORDS = {"passed": "pass", "skipped": "skip", "failed": "FAIL"}
_STORE_PARAMETERS = ("kind", "new_instance")
"""The parameters of a test that name the store it is run over."""
_NOT_RUN = "----"
_NOT_PROMISED = "·"
_SELECTIONS = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf", "stepwise")
"""The options of pytest that leave tests out."""


@dataclass(frozen=True, slots=True)
class Result:
    """How one promise turned out for one store; `reason` is set for one that was skipped.

    `promised_by` are the stores that make the promise, `stores` all there are, `position` is the
    promise's place among all.
    """

    position: int
    promise: str
    store: str
    promised_by: tuple[str, ...]
    stores: tuple[str, ...]
    outcome: str
    reason: str = ""

    @property
    def badness(self) -> int:
        return list(_WORDS).index(self.outcome)


Cells = Mapping[str, Mapping[str, Result]]
"""By promise and store."""


def annotate(items: Iterable[pytest.Item], stores: Sequence[str]) -> None:
    """Let the reports of these tests say what they are about, and which stores there are."""
    tests = [(item, store) for item in items if (store := _store(item)) is not None]
    promised_by: dict[str, list[str]] = defaultdict(list)
    for item, store in tests:
        if store not in (named := promised_by[_promise(item)]):
            named.append(store)
    positions = {promise: position for position, promise in enumerate(promised_by)}
    for item, store in tests:
        promise = _promise(item)
        value = [positions[promise], promise, store, promised_by[promise], list(stores)]
        item.user_properties.append((_PROPERTY, value))


def is_whole(config: pytest.Config) -> bool:
    """Whether this run is to run every test of the contract."""
    if any(config.getoption(option, None) for option in _SELECTIONS):
        return False
    start = config.invocation_params.dir
    return any(
        (start / argument).resolve() in (FOLDER, *FOLDER.parents) for argument in config.args
    )


def results(reports: Iterable[pytest.TestReport]) -> Iterator[Result]:
    """What these reports say of the contract; of one test there are up to three."""
    for report in reports:
        for name, value in report.user_properties:
            if name == _PROPERTY and (report.when == "call" or report.outcome != "passed"):
                yield _result(value, report)


def _result(value: Any, report: pytest.TestReport) -> Result:
    position, promise, store, promised_by, stores = value
    return Result(
        position,
        promise,
        store,
        tuple(promised_by),
        tuple(stores),
        report.outcome,
        _reason(report),
    )


def holes(found: Iterable[Result]) -> list[str]:
    """A line for each store and reason that promises were not shown for."""
    return _hole_lines(_holes(_cells(found)))


def lines(found: Iterable[Result]) -> list[str]:
    """The matrix as it is printed, with every hole named below; the worst result counts."""
    cells = _cells(found)
    stores = _stores(cells)
    width = max(map(len, cells), default=0)
    table = ["  ".join(["".ljust(width), *[store.rjust(4) for store in stores]])]
    for promise, row in cells.items():
        words = [_word(row, store).rjust(max(4, len(store))) for store in stores]
        table.append("  ".join([promise.ljust(width), *words]))
    return [*table, "", *_summary(cells)]


def _cells(found: Iterable[Result]) -> Cells:
    cells: dict[str, dict[str, Result]] = defaultdict(dict)
    for result in sorted(found, key=lambda result: result.position):
        before = cells[result.promise].get(result.store)
        if before is None or result.badness > before.badness:
            cells[result.promise][result.store] = result
    return cells


def _stores(cells: Cells) -> Sequence[str]:
    return next((result.stores for row in cells.values() for result in row.values()), ())


def _summary(cells: Cells) -> Iterator[str]:
    words = [_word(row, store) for row in cells.values() for store in _stores(cells)]
    found = _holes(cells)
    count = sum(map(len, found.values()))
    hole = "no hole" if not count else "1 hole" if count == 1 else f"{count} holes"
    total = len(words) - words.count(_NOT_PROMISED)
    yield f"{words.count('pass')} of {total} hold, {words.count('FAIL')} do not, {hole}"
    if _NOT_PROMISED in words:
        yield f"{_NOT_PROMISED} what only stores promise that several processes use at once"
    yield from _hole_lines(found)


def _holes(cells: Cells) -> Mapping[tuple[str, str], Sequence[str]]:
    """The promises that were not shown, by store and reason."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for promise, row in cells.items():
        for store in _stores(cells):
            word = _word(row, store)
            if word == _NOT_RUN:
                found[store, "it was not run"].append(promise)
            elif word == _WORDS["skipped"]:
                found[store, row[store].reason].append(promise)
    return found


def _hole_lines(found: Mapping[tuple[str, str], Sequence[str]]) -> list[str]:
    return [
        f"hole: {store}: '{first}'{f' and {len(more)} more' if more else ''}: {reason}"
        for (store, reason), (first, *more) in found.items()
    ]


def _word(row: Mapping[str, Result], store: str) -> str:
    if (result := row.get(store)) is not None:
        return _WORDS[result.outcome]
    promised = any(store in result.promised_by for result in row.values())
    return _NOT_RUN if promised else _NOT_PROMISED


def _store(item: pytest.Item) -> str | None:
    callspec = getattr(item, "callspec", None)
    params = callspec.params if callspec is not None else {}
    return next(
        (str(params[parameter]) for parameter in _STORE_PARAMETERS if parameter in params), None
    )


def _promise(item: pytest.Item) -> str:
    name: str = getattr(item, "originalname", item.name)
    return name.removeprefix("test_").replace("_", " ")


def _reason(report: pytest.TestReport) -> str:
    if report.outcome != "skipped" or not isinstance(report.longrepr, tuple):
        return ""
    return str(report.longrepr[2]).removeprefix("Skipped: ")
