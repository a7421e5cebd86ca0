"""Cassettes that may have been meant by a name that no cassette has."""

from collections.abc import Sequence

from tapeway.core.text import nearest_names

_MOST_COMPARED = 2000
_MOST = 3


def near_names(name: str, names: Sequence[str]) -> tuple[str, ...]:
    """The names that may have been meant, the likeliest first."""
    last = name.rpartition("/")[2].lower()
    same = [other for other in names if other.rpartition("/")[2].lower() == last]
    others = nearest_names(name, names[:_MOST_COMPARED], _MOST)
    return tuple(dict.fromkeys([*same, *others]))[:_MOST]


def question(name: str, names: Sequence[str]) -> str:
    """The end of a message, such as `; is smoke meant?`; empty where no name comes near."""
    near = near_names(name, names)
    return f"; is {' or '.join(near)} meant?" if near else ""
