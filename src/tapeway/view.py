"""What of a shared cassette one request is decided on."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.matching.rules import Rules
from tapeway.core.model.cassette import CassetteHead, TakenRecording
from tapeway.core.model.control import CursorState


@dataclass(frozen=True, slots=True)
class Shelf:
    """What is known of a cassette: until something is steered, that does not change."""

    head: CassetteHead
    rules: Rules
    routes: frozenset[str]
    unrouted: bool
    born: bool
    origins: tuple[str, ...] = ()
    """Where recordings were made that name no route."""


@dataclass(frozen=True, slots=True)
class View:
    """A cassette of what was found under some keys, and where those stood."""

    cassette: CassetteIndex
    turns: Mapping[bytes, CursorState]


def items(view: View) -> list[TakenRecording]:
    return [TakenRecording(each, view.cassette.recorded_in(each.index)) for each in view.cassette]


def united(view: View, more: Iterable[TakenRecording]) -> list[TakenRecording]:
    """Both, the view's own where they hold the same: what was matched is told by its identity."""
    seen = {each.item.index: each for each in chain(more, items(view))}
    return [seen[index] for index in sorted(seen)]
