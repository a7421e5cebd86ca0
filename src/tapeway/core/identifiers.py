"""Identifiers that recorded answers issued, and the requests that carry them.

A conversation with tools carries what earlier answers called things: `call_…`, `resp_…`, the id of
a file. An app, or a turn that was live meanwhile, may have other names for them. Such a request is
the recorded one if all that differs is names, and each name means one thing throughout.

Finding is in two steps: a coarse key, blind to every text without blanks, gives a few candidates;
these are compared leaf by leaf.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tapeway.core import tokens
from tapeway.core.json_text import Json, canonical
from tapeway.core.model import ForeignInteraction, Interaction, Request
from tapeway.core.renaming import Renaming
from tapeway.core.rules import NONE, Rules
from tapeway.core.subject import document

MOST_COMPARED = 32
"""Of very many requests that look alike, so many of the newest are compared."""

_TEXT = rb'[^" \\]*(?:\\.[^" \\]*)*'
_ANY = rb'[^"\\]*(?:\\.[^"\\]*)*'
# All but texts without a blank: names of members, texts with one, and what is no text.
_SEEN = re.compile(rb'("' + _TEXT + rb"(?: " + _ANY + rb'"|"(?=:))|[^"]+)|"' + _TEXT + rb'"')


@dataclass(frozen=True, slots=True)
class Match:
    """A recording whose request is the one asked for, and the names it has for identifiers."""

    interaction: Interaction
    names: Mapping[str, str]


class Identifiers:
    """The identifiers of one cassette, and which of its requests carry some."""

    def __init__(
        self, interactions: Iterable[Interaction | ForeignInteraction], rules: Rules = NONE
    ) -> None:
        self.issued: dict[str, int] = {}
        self._rules = rules
        self._seen: set[int] = set()
        self._carriers: dict[bytes, list[Interaction]] = {}
        recordings = [each for each in interactions if isinstance(each, Interaction)]
        # An edited or merged cassette may hold an answer behind the request that carries its ids.
        learnt = [(each, self._learn(each)) for each in recordings]
        for each, shown in learnt:
            self._file(each, shown)

    def __contains__(self, index: int) -> bool:
        return index in self._seen

    def add(self, interaction: Interaction) -> None:
        """Take in a new recording."""
        self._file(interaction, self._learn(interaction))

    def carried(self, request: Request) -> dict[str, int]:
        """The identifiers a request carries, each with the recording that issued it."""
        if not self.issued:
            return {}
        return {each: self.issued[each] for each in self.issued.keys() & tokens.sent_back(request)}

    def look(self, request: Request, routes: Iterable[str]) -> list[Match]:
        """The recordings that are this request but for names, in their order.

        All that match have the same names unchanged: an issued identifier stands for itself.
        """
        if not self._carriers:
            return []
        asked = document(request, self._rules)
        found: list[Match] = []
        for route in routes:
            for each in self._carriers.get(_coarse(route, asked), ())[-MOST_COMPARED:]:
                renaming = Renaming(self.issued)
                if renaming.explains(document(each.request, self._rules), asked):
                    found.append(Match(each, renaming.names))
        return sorted(found, key=lambda match: match.interaction.index)

    def _learn(self, interaction: Interaction) -> set[str]:
        # What the app sent first is the app's own name for something.
        shown = tokens.shown(interaction.request)
        for each in tokens.issued(interaction.response) - shown:
            self.issued.setdefault(each, interaction.index)
        return shown

    def _file(self, interaction: Interaction, shown: set[str]) -> None:
        self._seen.add(interaction.index)
        request = interaction.request
        if not self.issued.keys().isdisjoint(shown):
            coarse = _coarse(request.route, document(request, self._rules))
            self._carriers.setdefault(coarse, []).append(interaction)


def _coarse(route: str, asked: Mapping[str, Json]) -> bytes:
    blind = b"".join(_SEEN.findall(canonical(dict(asked))))
    return hashlib.blake2b(b"%b\0%b" % (route.encode(), blind), digest_size=16).digest()
