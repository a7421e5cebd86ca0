"""Counting the values of a class that are left."""

import gc

from tests.support.memory import living


class _Value:
    """A value that nothing else makes."""


def _freeze(phase: str, info: dict[str, int]) -> None:
    if phase == "stop":
        gc.freeze()


def test_values_count_although_each_collection_exempts_them() -> None:
    gc.callbacks.append(_freeze)
    try:
        value = _Value()
        assert living(_Value) == 1
        del value
        assert living(_Value) == 0
    finally:
        gc.callbacks.remove(_freeze)
        gc.unfreeze()


def test_exempted_values_in_a_cycle_do_not_count() -> None:
    value = _Value()
    value.__dict__["itself"] = value
    gc.freeze()
    del value

    assert living(_Value) == 0
