"""The matrix of the contract suite: which store was shown to keep which promise.

Each test notes in its report which promise it is about and of which store, so that the matrix can
be made wherever the reports come together, also from several processes.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

_PROPERTY = "contract"
_WORDS = {"passed": "pass", "skipped": "skip", "failed": "FAIL"}
_STORES = ("kind", "new_instance")
"""The parameters of a test that say which store it is run over."""
_NOT_RUN = "----"
_NOT_PROMISED = "·"

Cells = Mapping[str, Mapping[str, "Result"]]
"""By promise and store."""


@dataclass(frozen=True, slots=True)
class Result:
    """How one promise turned out for one store; `why` is set for one that was skipped.

    `of` are the stores that make the promise, `every` all there are, `at` its place among all.
    """

    at: int
    promise: str
    store: str
    of: tuple[str, ...]
    every: tuple[str, ...]
    outcome: str
    why: str = ""

    @property
    def badness(self) -> int:
        return list(_WORDS).index(self.outcome)


def note(items: Iterable[pytest.Item], every: Sequence[str]) -> None:
    """Let the reports of these tests say what they are about, and which stores there are."""
    found = [(item, kind) for item in items if (kind := _kind(item)) is not None]
    stores: dict[str, list[str]] = defaultdict(list)
    for item, kind in found:
        if kind not in (named := stores[_promise(item)]):
            named.append(kind)
    order = {promise: at for at, promise in enumerate(stores)}
    for item, kind in found:
        promise = _promise(item)
        said = [order[promise], promise, kind, stores[promise], list(every)]
        item.user_properties.append((_PROPERTY, said))


def results(reports: Iterable[pytest.TestReport]) -> Iterator[Result]:
    """What these reports say of the contract; of one test there are up to three."""
    for report in reports:
        for name, value in report.user_properties:
            if name == _PROPERTY and (report.when == "call" or report.outcome != "passed"):
                yield _result(value, report)


def _result(noted: Any, report: pytest.TestReport) -> Result:
    at, promise, store, of, every = noted
    return Result(at, promise, store, tuple(of), tuple(every), report.outcome, _why(report))


def lines(found: Iterable[Result]) -> list[str]:
    """The matrix as it is printed, with every hole named below; the worst result counts."""
    cells: dict[str, dict[str, Result]] = defaultdict(dict)
    stores: Sequence[str] = ()
    for each in sorted(found, key=lambda each: each.at):
        before = cells[each.promise].get(each.store)
        if before is None or each.badness > before.badness:
            cells[each.promise][each.store] = each
        stores = each.every
    width = max(map(len, cells), default=0)
    titles = [store.rjust(4) for store in stores]
    said = ["  ".join(["".ljust(width), *titles])]
    for promise, row in cells.items():
        words = [_word(row, store).rjust(max(4, len(store))) for store in stores]
        said.append("  ".join([promise.ljust(width), *words]))
    return [*said, "", *_summary(cells, stores)]


def _summary(cells: Cells, stores: Sequence[str]) -> Iterator[str]:
    told = [_word(row, store) for row in cells.values() for store in stores]
    holes: dict[tuple[str, str], list[str]] = defaultdict(list)
    for promise, row in cells.items():
        for store in stores:
            word = _word(row, store)
            if word == _NOT_RUN:
                holes[store, "it was not run"].append(promise)
            elif word == _WORDS["skipped"]:
                holes[store, row[store].why].append(promise)
    count = sum(map(len, holes.values()))
    hole = "no hole" if not count else "1 hole" if count == 1 else f"{count} holes"
    total = len(told) - told.count(_NOT_PROMISED)
    yield f"{told.count('pass')} of {total} hold, {told.count('FAIL')} do not, {hole}"
    if _NOT_PROMISED in told:
        yield f"{_NOT_PROMISED} what only stores promise that several processes use at once"
    for (store, why), promises in holes.items():
        rest = f" and {len(promises) - 1} more" if len(promises) > 1 else ""
        yield f"hole: {store}: '{promises[0]}'{rest}: {why}"


def _word(row: Mapping[str, Result], store: str) -> str:
    if (found := row.get(store)) is not None:
        return _WORDS[found.outcome]
    promised = any(store in each.of for each in row.values())
    return _NOT_RUN if promised else _NOT_PROMISED


def _kind(item: pytest.Item) -> str | None:
    callspec = getattr(item, "callspec", None)
    params = callspec.params if callspec is not None else {}
    return next((str(params[each]) for each in _STORES if each in params), None)


def _promise(item: pytest.Item) -> str:
    name: str = getattr(item, "originalname", item.name)
    return name.removeprefix("test_").replace("_", " ")


def _why(report: pytest.TestReport) -> str:
    if report.outcome != "skipped" or not isinstance(report.longrepr, tuple):
        return ""
    return str(report.longrepr[2]).removeprefix("Skipped: ")
