"""Which stores a test outside the contract suite is run on by default."""

from collections import defaultdict

import pytest

from tests.stores.contract.kinds import Kind
from tests.stores.contract.matrix import FOLDER
from tests.support.thoroughness import step

_NAMES = ("address", "store")
"""Parameters that name a store by a text."""
_ALL_STORES = 4
"""A test of fewer stores is about these."""


def sample(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take a test of every store on every second one, beginning with another store in each test.

    Each store is still used by half of the tests of a file, and under `--all` by all of them. What
    stores promise, in `tests/stores/contract`, is always shown on each.
    """
    stores: dict[str, list[str]] = defaultdict(list)
    for item in items:
        if (store := _store(item)) and store not in (known := stores[_test(item)]):
            known.append(store)
    numbers = {test: number for number, test in enumerate(stores)}
    left_out = [
        item
        for item in items
        if (store := _store(item))
        and len(known := stores[_test(item)]) >= _ALL_STORES
        and (known.index(store) + numbers[_test(item)]) % step(2)
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(map(id, left_out))
        items[:] = [item for item in items if id(item) not in gone]


def _test(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _store(item: pytest.Item) -> str:
    """The store that a test outside the contract suite is run on; empty if it is about none."""
    call = getattr(item, "callspec", None)
    if call is None or FOLDER in item.path.parents:
        return ""
    for name, value in call.params.items():
        if isinstance(value, Kind):
            return value.name
        if name in _NAMES and isinstance(value, str):
            return value
    return ""
