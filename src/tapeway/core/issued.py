"""Which recording issued an identifier, found out when somebody asks.

To read every answer of a large cassette takes longer than a miss may. So the answers it was loaded
with are only searched, for one identifier at a time, until there were so many that reading would have
been quicker; what is recorded later is read as it comes.
"""

from collections.abc import Sequence
from functools import cached_property, lru_cache

from tapeway.core import tokens
from tapeway.core.model import Interaction

REMEMBERED = 4096
"""So many texts need no second search."""

PATIENCE = 50
"""So many searches take about as long as reading all."""


class Issued:
    """The identifiers that answers issued, each with the first of the recordings that did.

    `held` is in order and does not change.
    """

    def __init__(self, held: Sequence[Interaction]) -> None:
        self._held = held
        self._found = lru_cache(maxsize=REMEMBERED)(self._search)
        self._new: dict[str, int] = {}
        self._searches = 0

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and self.by(text) is not None

    def add(self, interaction: Interaction) -> None:
        """Take in a new recording."""
        for each in _issued(interaction):
            self._new.setdefault(each, interaction.index)

    def by(self, text: str) -> int | None:
        """The recording that issued it; among 10,000 of 1 KiB that takes some milliseconds, once."""
        if not tokens.could_be(text):
            return None
        found = self._found(text)
        return self._new.get(text) if found is None else found

    def _search(self, text: str) -> int | None:
        self._searches += 1
        if self._searches > PATIENCE:
            return self._read.get(text)
        octets = text.encode()
        if not tokens.is_drawn(text):
            # Only the name it stands under makes such a one an identifier.
            quoted = b'"%b"' % octets
            held = [each for each in self._held if quoted in each.response.body]
            held = [each for each in held if tokens.is_named(quoted, each.response.body)]
        else:
            held = [each for each in self._held if octets in each.response.body]
            held = sorted([*held, *self._linked], key=lambda each: each.index)
        return next((each.index for each in held if text in _issued(each)), None)

    @cached_property
    def _read(self) -> dict[str, int]:
        return {text: each.index for each in reversed(self._held) for text in _issued(each)}

    @cached_property
    def _linked(self) -> list[Interaction]:
        return [each for each in self._held if tokens.has_links(each.response)]


def _issued(interaction: Interaction) -> set[str]:
    # What the app sent first is the app's own name for something.
    return tokens.issued(interaction.response) - tokens.shown(interaction.request)
