"""Refuses stored data in a form that this tapeway does not write, by the version."""

from tapeway.errors import CassetteCorrupt, StoreError


def refuse_other_version(
    found: int,
    known: int,
    place: str,
    error: type[StoreError] = CassetteCorrupt,
    what: str = "its tables are",
) -> None:
    """Raise `error` where version `found` is not the version `known` that this tapeway writes."""
    if found > known:
        raise error(
            f"{place} was written by a newer tapeway: {what} of version {found}, and this "
            f"one knows {known}: update tapeway, or use another store; it was left as it is"
        )
    if found < known:
        raise error(
            f"{place}: {what} of version {found}, and this tapeway reads version {known}: use the "
            "tapeway that wrote it; it was left as it is"
        )
