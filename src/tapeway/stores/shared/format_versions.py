"""Which upgrades bring what is stored to the version that this tapeway writes."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from tapeway.errors import CassetteCorrupt, StoreError

Upgrade = TypeVar("Upgrade")


def pending_upgrades(
    found: int,
    known: int,
    upgrades: Mapping[int, Upgrade],
    place: str,
    error: type[StoreError] = CassetteCorrupt,
    what: str = "its tables are",
) -> Sequence[Upgrade]:
    """The upgrades from version `found` to version `known`, in order.

    `upgrades` holds each under the version it starts from: `upgrade_1_to_2` under 1. Raises `error`
    for what a newer tapeway wrote, and for a version that no upgrade starts from.
    """
    if found > known:
        raise error(
            f"{place} was written by a newer tapeway: {what} of version {found}, and this "
            f"one knows {known}: update tapeway, or use another store; it was left as it is"
        )
    missing = [version for version in range(found, known) if version not in upgrades]
    if missing:
        raise error(
            f"{place}: {what} of version {found}, and there is no upgrade from version "
            f"{missing[0]} to {missing[0] + 1}: use the tapeway that wrote it; it was left as it is"
        )
    return [upgrades[version] for version in range(found, known)]
