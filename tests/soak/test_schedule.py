"""What is drawn from a seed: the same each time, and all of it in turn."""

from itertools import islice

import pytest

from tests.soak.history import KINDS, Kind
from tests.soak.schedule import (
    CLIENTS,
    FAULTS,
    SHORT,
    Ask,
    Edit,
    operations,
    rounds,
    short_rounds,
)


@pytest.mark.parametrize("store", KINDS)
def test_a_seed_gives_the_same_operations_and_faults_each_time(store: Kind) -> None:
    def drawn(seed: int) -> list[object]:
        work = [list(islice(operations(seed, store, number), 200)) for number in range(CLIENTS)]
        return [list(islice(rounds(seed, store), 20)), list(short_rounds(seed, store)), work]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


@pytest.mark.parametrize("store", KINDS)
def test_every_fault_comes_before_one_comes_again(store: Kind) -> None:
    count = len(FAULTS[store])
    kinds = [one_round.fault.kind for one_round in islice(rounds(5, store), 2 * count)]

    assert sorted(kinds[:count]) == sorted(kinds[count:]) == sorted(FAULTS[store])
    assert sorted(one_round.fault.kind for one_round in short_rounds(5, store)) == sorted(
        SHORT[store]
    )


def test_clients_ask_the_same_at_about_the_same_time_and_edit_the_same() -> None:
    work = [list(islice(operations(1, "postgres", number), 300)) for number in range(CLIENTS)]

    questions = [
        {
            request.question
            for request in one
            if isinstance(request, Ask) and request.cassette == "misses"
        }
        for one in work
    ]
    assert len(set.intersection(*questions)) > 10
    edits = [{request.question for request in one if isinstance(request, Edit)} for one in work]
    assert edits[0] & edits[1]
    assert not any(edits[2:])
