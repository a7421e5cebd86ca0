"""Recordings are made of the rows of their table."""

from tapeway.core.digests import sha256
from tapeway.core.model.interaction import AnyInteraction
from tapeway.stores.postgres.operations.rows import recordings_of
from tapeway.stores.postgres.pool import DriverRow as Row
from tapeway.stores.support.columns import imported_text
from tests.stores.recordings import recording


def row(number: int) -> Row:
    text = imported_text(recording(number).interaction)
    return (number, number, 1, text, sha256(text).digest())


def whole(item: AnyInteraction) -> AnyInteraction:
    return item


def test_others_may_run_after_each_row() -> None:
    steps: list[int] = []

    found = recordings_of(
        [row(number) for number in range(5)], "x", whole, held=True, step=lambda: steps.append(1)
    )

    assert [taken.item.index for taken in found] == [0, 1, 2, 3, 4]
    assert len(steps) == 5
