"""Refuses stored data in a form that this tapeway does not write, by the version."""

from tapeway.errors import CassetteCorrupt, StoreError


def refuse_other_version(
    written: int,
    known: int,
    place: str,
    error: type[StoreError] = CassetteCorrupt,
    what: str = "its tables are",
) -> None:
    """Raise `error` where version `written` is not the version `known` that this tapeway writes."""
    if written > known:
        raise error(
            f"{place} was written by a newer tapeway: {what} of version {written}, and this "
            f"one knows {known}: update tapeway, or use another store; it was left as it is"
        )
    if written < known:
        raise error(
            f"{place}: {what} of version {written}, and this tapeway reads version {known}: use the "
            "tapeway that wrote it; it was left as it is"
        )
