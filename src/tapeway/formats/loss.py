"""What a conversion between formats could not carry, and where it stood."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tapeway.core.model.cassette import StoredCassette
from tapeway.formats.fault import Pointer, shown
from tapeway.formats.fields import Fields


@dataclass(frozen=True, slots=True)
class Loss:
    """One thing that is no more after a conversion; `left_out` where it is a whole interaction."""

    place: Pointer
    what: str
    left_out: bool = False

    def __str__(self) -> str:
        return ": ".join(filter(None, [shown(self.place), self.what]))


def dropped(fields: Fields, known: Collection[str]) -> Iterator[Loss]:
    """A loss for each field that says something and has no place in a cassette."""
    for name, value in fields.values.items():
        if name not in known and value not in (None, "", [], {}):
            yield Loss((*fields.at, name), "is not kept")


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a file of another tool says, as a cassette, and what that cannot hold."""

    cassette: StoredCassette
    losses: tuple[Loss, ...] = ()


@dataclass(frozen=True, slots=True)
class Saved:
    """The file of a cassette in another tool's format, and what that cannot hold."""

    text: bytes
    losses: tuple[Loss, ...] = ()

    @property
    def left_out(self) -> frozenset[int]:
        """The positions of the interactions that are not in the file."""
        places = [loss.place for loss in self.losses if loss.left_out]
        return frozenset([at[1] for at in places if len(at) > 1 and isinstance(at[1], int)])
