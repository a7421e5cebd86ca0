"""Identifiers that recorded answers issued, and the requests that carry them.

A conversation with tools carries what earlier answers called things: `call_…`, `resp_…`, the id of
a file. An app, or a turn that was live meanwhile, may have other names for them. Such a request is
the recorded one if all that differs is names, and each name means one thing throughout.

Finding is in three steps: a quick look at bytes leaves few of very many; a coarse key, blind to
every text without blanks, leaves the candidates; these are compared leaf by leaf.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from operator import attrgetter

from tapeway.core import tokens
from tapeway.core.issued import Issued
from tapeway.core.json_text import Json, canonical
from tapeway.core.model import ForeignInteraction, Interaction, Request
from tapeway.core.renaming import Renaming, leaves
from tapeway.core.rules import NONE, Rules
from tapeway.core.sieve import sifted
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


def has_links(request: Request, rules: Rules = NONE) -> bool:
    """Whether it carries anything that an earlier answer could have issued."""
    return any(each.is_link for each in leaves(document(request, rules)))


class Identifiers:
    """The identifiers of one cassette, and which of its requests carry some.

    What the cassette was loaded with is read only where a request may be one of its recordings, so
    that the first look is as quick as any other. Looks may be taken in a thread meanwhile others add.
    """

    def __init__(
        self, interactions: Iterable[Interaction | ForeignInteraction], rules: Rules = NONE
    ) -> None:
        self._rules = rules
        held = [each for each in interactions if isinstance(each, Interaction)]
        self._held = sorted(held, key=attrgetter("index"))
        self._coarse_of: dict[int, bytes] = {}
        self._added: dict[bytes, list[Interaction]] = {}
        self.issued = Issued(self._held)

    def add(self, interaction: Interaction) -> None:
        """Take in a new recording."""
        self.issued.add(interaction)
        said = document(interaction.request, self._rules)
        if any(each.is_link for each in leaves(said)):
            coarse = _coarse(interaction.request.route, said)
            self._added.setdefault(coarse, []).append(interaction)

    def carried(self, request: Request) -> dict[str, int]:
        """The identifiers a request carries, each with the recording that issued it."""
        found = {each: self.issued.by(each) for each in tokens.sent_back(request)}
        return {each: index for each, index in found.items() if index is not None}

    def look(self, request: Request, routes: Collection[str]) -> list[Match]:
        """The recordings that are this request but for names, in their order.

        All that match have the same names unchanged: an issued identifier stands for itself.
        """
        asked = document(request, self._rules)
        said = list(leaves(asked))
        if not any(each.is_link for each in said):
            return []
        sought = {_coarse(route, asked) for route in routes}
        added = [each for coarse in sought for each in self._added.get(coarse, ())]
        there = [
            each
            for each in self._held
            if each.request.method == request.method and each.request.route in routes
        ]
        if asked.get("content") == "json":
            there = sifted(there, said)
        alike = (each for each in reversed(there) if self._coarse(each) in sought)
        found: list[Match] = []
        for each in islice(chain(reversed(added), alike), MOST_COMPARED):
            renaming = Renaming(self.issued)
            if renaming.explains(document(each.request, self._rules), asked):
                found.append(Match(each, renaming.names))
        return sorted(found, key=lambda match: match.interaction.index)

    def _coarse(self, interaction: Interaction) -> bytes:
        coarse = self._coarse_of.get(interaction.index)
        if coarse is None:
            request = interaction.request
            coarse = _coarse(request.route, document(request, self._rules))
            self._coarse_of[interaction.index] = coarse
        return coarse


def _coarse(route: str, asked: Mapping[str, Json]) -> bytes:
    blind = b"".join(_SEEN.findall(canonical(dict(asked))))
    return hashlib.blake2b(b"%b\0%b" % (route.encode(), blind), digest_size=16).digest()
