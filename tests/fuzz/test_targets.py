"""The short form of `make fuzz`: the same promises, over a few hundred variations of each seed."""

import random
from itertools import islice

import pytest

from tests.fuzz.seeds import mutated, seeds
from tests.fuzz.targets import TARGETS
from tests.support.thoroughness import examples

COUNT = 150


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_well_formed_and_what_was_once_a_fault_keeps_the_promises(name: str) -> None:
    for data in seeds(name):
        TARGETS[name](data)


@pytest.mark.parametrize("name", TARGETS)
def test_variations_keep_the_promises(name: str) -> None:
    for data in islice(mutated(seeds(name), random.Random(name)), examples(COUNT)):
        try:
            TARGETS[name](data)
        except BaseException as exc:
            raise AssertionError(f"{name} with {data!r}") from exc


def test_every_target_begins_with_something_that_is_read() -> None:
    """A target that refuses all of its seeds would search at the door only."""
    for name in TARGETS:
        assert len(seeds(name)) >= 2
