"""Identifiers that recorded answers issued, and the requests that carry them.

A conversation with tools carries what earlier answers called things: `call_…`, `resp_…`, the id of
a file. An app, or a turn that was live meanwhile, may have other names for them. Such a request is
the recorded one if all that differs is names, and each name means one thing throughout.

Finding is in three steps: a quick look at bytes leaves few of very many; a coarse key, blind to
every text without blanks, leaves the candidates; these are compared leaf by leaf.

Which recording issued an identifier, found out when somebody asks.

To read every answer of a large cassette takes longer than a miss may. So the answers it was loaded
with are only searched, for one identifier at a time, until there were so many that reading would have
been quicker; what is recorded later is read as it comes.

A quick look at which recorded requests could be one that was asked, but for names of links.

Everything else has to be the same, so pieces of it stand in the bytes of such a request. Nothing is
parsed for that: among 10,000 recordings it takes some milliseconds.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, islice
from operator import attrgetter

from tapeway.core.correlation import ids
from tapeway.core.correlation.unify import BodyText, IdUnifier, body_texts
from tapeway.core.json_text import Json, canonical
from tapeway.core.matching.document import document
from tapeway.core.matching.rules import NO_RULES, Rules
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.core.model.messages import Request

REMEMBERED = 4096
"""So many texts need no second search."""

MOST_SEARCHES = 50
"""So many searches take about as long as reading all."""

FEW_LEFT = 32
"""So few are not sifted on."""
_PIECE = 24
_PIECES = 8

# What rules or redaction put into a text does not stand in the bytes.
_PUT_THERE = re.compile(r"<[^<>]*>|REDACTED")

# Everybody writes these as they are, but for those who keep to ASCII.
_PLAIN = re.compile(r"[\w .,:;-]+")

MOST_COMPARED = 32
"""Of very many requests that look alike, so many of the newest are compared."""
_TEXT = rb'[^" \\]*(?:\\.[^" \\]*)*'
_ANY = rb'[^"\\]*(?:\\.[^"\\]*)*'

# All but texts without a blank: names of members, texts with one, and what is no text.
_SEEN = re.compile(rb'("' + _TEXT + rb"(?: " + _ANY + rb'"|"(?=:))|[^"]+)|"' + _TEXT + rb'"')


class IssuedIds:
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
        if not ids.is_token(text):
            return None
        found = self._found(text)
        return self._new.get(text) if found is None else found

    def _search(self, text: str) -> int | None:
        self._searches += 1
        if self._searches > MOST_SEARCHES:
            return self._read.get(text)
        octets = text.encode()
        if not ids.looks_random(text):
            # Only the name it stands under makes such a one an identifier.
            quoted = b'"%b"' % octets
            held = [each for each in self._held if quoted in each.response.body]
            held = [each for each in held if ids.is_under_id_name(quoted, each.response.body)]
        else:
            held = [each for each in self._held if octets in each.response.body]
            held = sorted([*held, *self._linked], key=lambda each: each.index)
        return next((each.index for each in held if text in _issued(each)), None)

    @cached_property
    def _read(self) -> dict[str, int]:
        return {text: each.index for each in reversed(self._held) for text in _issued(each)}

    @cached_property
    def _linked(self) -> list[Interaction]:
        return [each for each in self._held if ids.may_have_header_ids(each.response)]


def _issued(interaction: Interaction) -> set[str]:
    # What the app sent first is the app's own name for something.
    return ids.issued_ids(interaction.response) - ids.request_tokens(interaction.request)


def could_match(held: Iterable[Interaction], said: Collection[BodyText]) -> list[Interaction]:
    """Those whose JSON bodies could say the same under the same names, in their order."""
    names = {f'"{each.name}"' for each in said if each.is_link}
    left = list(held)
    # Long ones are quicker to look for, and fewer have them.
    for piece in sorted([*_pieces(said), *sorted(names)], key=len, reverse=True):
        if len(left) <= FEW_LEFT:
            break
        if piece.isascii():
            left = _with(piece.encode(), left)
        else:
            there = {each.index for spelled in _spellings(piece) for each in _with(spelled, left)}
            left = [each for each in left if each.index in there]
    return left


def _with(octets: bytes, held: list[Interaction]) -> list[Interaction]:
    return [each for each in held if octets in each.request.body]


def _pieces(said: Iterable[BodyText]) -> list[str]:
    """Pieces of all texts that are no links, from all over them, the last ones first."""
    runs = [
        run
        for each in said
        if not each.is_link
        for run in _PLAIN.findall(_PUT_THERE.sub("\n", each.text))
    ]
    cut = [run[at : at + _PIECE] for run in runs for at in range(0, len(run), _PIECE)]
    found = list(dict.fromkeys(cut))[::-1]
    return [found[at * len(found) // _PIECES] for at in range(min(_PIECES, len(found)))]


def _spellings(piece: str) -> tuple[bytes, bytes]:
    return piece.encode(), json.dumps(piece)[1:-1].encode()


@dataclass(frozen=True, slots=True)
class CorrelatedRecording:
    """A recording whose request is the one asked for, and the names it has for identifiers."""

    interaction: Interaction
    names: Mapping[str, str]


def carries_links(request: Request, rules: Rules = NO_RULES) -> bool:
    """Whether it carries anything that an earlier answer could have issued."""
    return any(each.is_link for each in body_texts(document(request, rules)))


class CorrelationIndex:
    """The identifiers of one cassette, and which of its requests carry some.

    What the cassette was loaded with is read only where a request may be one of its recordings, so
    that the first look is as quick as any other. Looks may be taken in a thread meanwhile others add.
    """

    def __init__(self, interactions: Iterable[AnyInteraction], rules: Rules = NO_RULES) -> None:
        self._rules = rules
        held = [each for each in interactions if isinstance(each, Interaction)]
        self._held = sorted(held, key=attrgetter("index"))
        self._coarse_of: dict[int, bytes] = {}
        self._added: dict[bytes, list[Interaction]] = {}
        self.issued = IssuedIds(self._held)

    def add(self, interaction: Interaction) -> None:
        """Take in a new recording."""
        self.issued.add(interaction)
        said = document(interaction.request, self._rules)
        if any(each.is_link for each in body_texts(said)):
            coarse = _coarse(interaction.request.route, said)
            self._added.setdefault(coarse, []).append(interaction)

    def carried(self, request: Request) -> dict[str, int]:
        """The identifiers a request carries, each with the recording that issued it."""
        found = {each: self.issued.by(each) for each in ids.sent_ids(request)}
        return {each: index for each, index in found.items() if index is not None}

    def look(self, request: Request, routes: Collection[str]) -> list[CorrelatedRecording]:
        """The recordings that are this request but for names, in their order.

        All that match have the same names unchanged: an issued identifier stands for itself.
        """
        asked = document(request, self._rules)
        said = list(body_texts(asked))
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
            there = could_match(there, said)
        alike = (each for each in reversed(there) if self._coarse(each) in sought)
        found: list[CorrelatedRecording] = []
        for each in islice(chain(reversed(added), alike), MOST_COMPARED):
            renaming = IdUnifier(self.issued)
            if renaming.explains(document(each.request, self._rules), asked):
                found.append(CorrelatedRecording(each, renaming.names))
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
