"""Finds recorded requests that differ from a request only in identifiers.

A conversation with tools sends back identifiers that earlier answers issued: `call_…`, `resp_…`. If
the app generates identifiers, or a turn was live meanwhile, they differ from the recorded ones. A
request matches a recorded request if only references to identifiers differ, and consistently
(`core/correlation/unify.py`).

A match is found in three steps. A byte search in the recorded bodies leaves a few. A coarse key
without all texts that have no blanks leaves the candidates. The candidates are compared value by
value.

Reading all recordings of a large cassette takes longer than a miss may. Loaded recordings
are therefore searched, for one request or identifier at a time, until reading
all would have been faster. Later requests are read when added, and later answers too, once a
request has sent an identifier: most apps send none.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from operator import attrgetter

from tapeway.core.correlation import ids
from tapeway.core.correlation.unify import (
    BodyText,
    IdUnifier,
    body_texts,
    differ_in_references,
    may_have_references,
    refers,
)
from tapeway.core.json_text import Json, canonical
from tapeway.core.matching.credential_fields import compared_document
from tapeway.core.matching.document import request_document
from tapeway.core.matching.recorded_request import RecordedRequest
from tapeway.core.matching.rules import Rules
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.core.model.lazy_interaction import LazyInteraction
from tapeway.core.model.messages import Request

CACHED_SEARCHES = 4096

MOST_SEARCHES = 50
"""Searches that together take about as long as reading all requests or answers."""

MOST_FILE_SEARCHES = 1
"""The number of searches for recordings in a file, where each search reads all."""

FEW_LOADED = 100
"""So few requests are searched each time: that is quick."""

MOST_COMPARED = 32
"""Of more candidates than this, only the newest are compared."""

MOST_ALIKE = 2 * MOST_COMPARED
"""So many recordings with one `alike_key` a store returns: some may be of other paths."""

FEW_ISSUED = 8
"""Up to this number, identifiers are searched in a request before the texts are read."""

FEW_LEFT = 32
"""Up to this number, recordings are compared without a further search."""

ALIKE_BYTES, ISSUED_BYTES = 20, 12
"""Lengths of `alike_key` and `issued_key`: no other key of a recording is as long."""

_PIECE_LENGTH = 24
_PIECES = 8

# What rules and redaction put into a text is not in the recorded bytes.
_REPLACEMENT = re.compile(r"<[^<>]*>|REDACTED")

# All JSON writers spell these characters alike, except writers that escape beyond ASCII.
_SPELLED_ALIKE = re.compile(r"[\w .,:;-]+")

# Without going back: neither ends before a quote or a blank.
_TEXT = rb'[^" \\]*+(?:\\.[^" \\]*+)*+'
_ANY = rb'[^"\\]*+(?:\\.[^"\\]*+)*+'

# All but texts without a blank: names of members, texts with a blank, and what is no text.
_IN_COARSE_KEY = re.compile(
    rb'((?:"' + _TEXT + rb"(?: " + _ANY + rb'"|"(?=:))|[^"]++)++)|"' + _TEXT + rb'"'
)


@dataclass(frozen=True, slots=True)
class CorrelatedRecording:
    """A recording whose request equals the asked request except for identifiers.

    `id_map` maps recorded identifiers to the identifiers of the request.
    """

    interaction: Interaction
    id_map: Mapping[str, str]


def has_references(request: Request, rules: Rules) -> bool:
    """Whether a request refers to anything that an earlier answer could have issued."""
    return may_have_references(request) and refers(request_document(request, rules))


def may_carry_ids(request: Request) -> bool:
    """Whether a request has anything that could be an identifier: most have not."""
    return may_have_references(request) or bool(ids.sent_ids(request))


class CorrelationIndex:
    """The identifiers issued by a cassette's answers, and the requests with references.

    Can be searched in one thread while a second thread, after a call of `begin`, adds and removes
    recordings.
    """

    def __init__(
        self,
        interactions: Iterable[AnyInteraction],
        rules: Rules,
        issuers: Mapping[str, int] | None = None,
    ) -> None:
        """`issuers` names the recordings that issued identifiers, where a store has looked them up."""
        self._rules = rules
        loaded = [
            interaction for interaction in interactions if isinstance(interaction, Interaction)
        ]
        self._unread = sorted(loaded, key=attrgetter("index"))
        self._searches, self._most_searches = 0, _most_searches(loaded)
        self._coarse_keys: dict[int, bytes] = {}
        self._read: dict[bytes, dict[int, Interaction]] = {}
        self.issued = IssuedIds(self._unread, issuers)

    @property
    def unread(self) -> int:
        """The number of recordings that are searched one by one."""
        return max(len(self._unread), self.issued.unread)

    def begin(self) -> None:
        """Have later answers read when added: a search may go on meanwhile."""
        self.issued.begin()

    def add(self, interaction: Interaction) -> None:
        """Add a new recording."""
        self.issued.add(interaction)
        self._add(interaction)

    def _add(self, interaction: Interaction) -> None:
        if not may_have_references(interaction.request):
            return
        recorded = compared_document(interaction.request, self._rules, recorded=True)
        if refers(recorded):
            coarse = _coarse_key(interaction.request.route, recorded)
            self._coarse_keys[interaction.index] = coarse
            self._read.setdefault(coarse, {})[interaction.index] = interaction

    def remove(self, index: int) -> None:
        """Forget a replaced or dropped recording, and the identifiers of its answer."""
        self.issued.remove(index)
        if (coarse := self._coarse_keys.pop(index, None)) is not None:
            self._read.get(coarse, {}).pop(index, None)

    def issued_in(self, request: Request) -> dict[str, int]:
        """The issued identifiers in a request, each with the issuing recording."""
        issuers = {sent_id: self.issued.issuer_of(sent_id) for sent_id in ids.sent_ids(request)}
        return {each: index for each, index in issuers.items() if index is not None}

    def find(self, request: Request, routes: Collection[str]) -> list[CorrelatedRecording]:
        """The recordings on some routes whose requests differ only in identifiers, in order.

        An identifier of the cassette matches only itself: a request with one matches only
        recordings with the identifier in the same place.
        """
        if not may_have_references(request):
            return []
        asked = compared_document(request, self._rules)
        texts = list(body_texts(asked))
        if not any(text.is_reference for text in texts):
            return []
        self._searches += 1
        if self._searches > self._most_searches and len(self._unread) > FEW_LOADED:
            self._read_all()
        wanted = {_coarse_key(route, asked) for route in routes}
        read = [each for coarse in wanted for each in [*self._read.get(coarse, {}).values()]]
        read.sort(key=attrgetter("index"), reverse=True)
        unread = [
            each
            for each in self._unread
            if each.request.method == request.method and each.request.route in routes
        ]
        if asked.get("content") == "json":
            unread = possible_matches(unread, texts)
        alike = (each for each in reversed(unread) if self._coarse_key_of(each) in wanted)
        left = (each for each in chain(read, alike) if each.index not in self.issued.removed)
        recordings: list[CorrelatedRecording] = []
        for each in islice(left, MOST_COMPARED):
            unifier = IdUnifier(self.issued)
            recorded = compared_document(each.request, self._rules, recorded=True)
            if unifier.unify(recorded, asked):
                recordings.append(CorrelatedRecording(each, unifier.id_map))
        return sorted(recordings, key=lambda match: match.interaction.index)

    def _read_all(self) -> None:
        for each in self._unread:
            self._add(each)
        self.issued.read_all()
        self._unread = []

    def _coarse_key_of(self, interaction: Interaction) -> bytes:
        coarse = self._coarse_keys.get(interaction.index)
        if coarse is None:
            request = interaction.request
            document = compared_document(request, self._rules, recorded=True)
            coarse = _coarse_key(request.route, document)
            self._coarse_keys[interaction.index] = coarse
        return coarse


class IssuedIds:
    """The identifiers that answers issued, each with the first issuing recording.

    `_loaded` does not change after the first look-up; later answers are read when
    added. Recordings in `removed` do not count.
    """

    def __init__(
        self, loaded: Iterable[Interaction], issuers: Mapping[str, int] | None = None
    ) -> None:
        """With `issuers` no answer is read: they are all that the caller asks for."""
        self._loaded = {} if issuers is not None else {each.index: each for each in loaded}
        self._is_used = issuers is not None
        # Not `lru_cache`: around a method it would be a cycle, and an ejected cassette stay in memory.
        self._found: dict[str, int | None] = {}
        self._issuers: dict[str, list[int]] | None = None
        if issuers is not None:
            self._issuers = {text: [index] for text, index in issuers.items()}
        self._added: dict[str, list[int]] = {}
        self._searches, self._most_searches = 0, _most_searches(self._loaded.values())
        self.removed: set[int] = set()

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and self.issuer_of(text) is not None

    @property
    def unread(self) -> int:
        """How many answers are searched for each identifier."""
        return len(self._loaded) if self._issuers is None else 0

    def add(self, interaction: Interaction) -> None:
        """Add a new recording."""
        if not self._is_used:
            self._loaded[interaction.index] = interaction
            return
        for each in _issued(interaction):
            self._added.setdefault(each, []).append(interaction.index)

    def remove(self, index: int) -> None:
        """Forget a recording that was replaced or dropped."""
        self.removed.add(index)
        if not self._is_used:
            self._loaded.pop(index, None)

    def begin(self) -> None:
        """Have later answers read when added."""
        self._is_used = True

    def issuer_of(self, text: str) -> int | None:
        """The recording that issued it; a first search in 10,000 of 1 KiB takes milliseconds."""
        if not ids.is_token(text):
            return None
        self.begin()
        if text not in self._found or self._found[text] in self.removed:
            if len(self._found) == CACHED_SEARCHES:
                self._found.clear()
            self._found[text] = self._search(text)
        found = self._found[text]
        return self._first(self._added.get(text, ())) if found is None else found

    def read_all(self) -> dict[str, list[int]]:
        """Read all answers, to keep later calls short."""
        self.begin()
        if self._issuers is None:
            issuers: dict[str, list[int]] = {}
            for each in self._loaded.values():
                for text in _issued(each):
                    issuers.setdefault(text, []).append(each.index)
            self._issuers = issuers
        return self._issuers

    def _search(self, text: str) -> int | None:
        self._searches += 1
        if self._issuers is not None or self._searches > self._most_searches:
            return self._first(self.read_all().get(text, ()))
        octets, loaded = text.encode(), self._loaded.values()
        if ids.looks_random(text):
            holding = [each for each in loaded if octets in each.response.body]
            holding = sorted([*holding, *self._with_header_ids], key=attrgetter("index"))
        else:
            # Only the field's name makes such a text an identifier.
            quoted = b'"%b"' % octets
            holding = [each for each in loaded if quoted in each.response.body]
            holding = [each for each in holding if ids.is_under_id_name(quoted, each.response.body)]
        left = (each for each in holding if each.index not in self.removed)
        return next((each.index for each in left if text in _issued(each)), None)

    def _first(self, issuers: Iterable[int]) -> int | None:
        return next((issuer for issuer in issuers if issuer not in self.removed), None)

    @cached_property
    def _with_header_ids(self) -> list[Interaction]:
        return [each for each in self._loaded.values() if ids.may_have_header_ids(each.response)]


def _most_searches(loaded: Iterable[Interaction]) -> int:
    lazy = any(isinstance(each, LazyInteraction) for each in loaded)
    return MOST_FILE_SEARCHES if lazy else MOST_SEARCHES


def _issued(interaction: Interaction) -> set[str]:
    issued, request = ids.issued_ids(interaction.response), interaction.request
    # Nearly no request holds an identifier of its answer, and reading takes longer than a search.
    if len(issued) <= FEW_ISSUED and not any(ids.may_hold(request, each) for each in issued):
        return issued
    # An identifier that the request held before was chosen by the app.
    return issued - ids.request_tokens(request)


def possible_matches(
    recordings: Iterable[Interaction], texts: Collection[BodyText]
) -> list[Interaction]:
    """The recordings whose JSON bodies could hold some texts, apart from references, in order.

    Nothing is parsed: pieces of the texts are searched in the bodies. Among 10,000 recordings this
    takes some milliseconds.
    """
    fields = {f'"{text.field}"' for text in texts if text.is_reference}
    left = list(recordings)
    # Long pieces are quicker to search, and fewer bodies hold them.
    for piece in sorted([*_pieces(texts), *sorted(fields)], key=len, reverse=True):
        if len(left) <= FEW_LEFT:
            break
        if piece.isascii():
            left = _holding(piece.encode(), left)
        else:
            spellings = (piece.encode(), json.dumps(piece)[1:-1].encode())
            found = {each.index for octets in spellings for each in _holding(octets, left)}
            left = [each for each in left if each.index in found]
    return left


def _holding(octets: bytes, recordings: list[Interaction]) -> list[Interaction]:
    return [recording for recording in recordings if octets in recording.request.body]


def _pieces(texts: Iterable[BodyText]) -> list[str]:
    """Pieces of the texts without references, spread over all texts, the last first."""
    runs = [
        run
        for text in texts
        if not text.is_reference
        for run in _SPELLED_ALIKE.findall(_REPLACEMENT.sub("\n", text.text))
    ]
    cut = [run[at : at + _PIECE_LENGTH] for run in runs for at in range(0, len(run), _PIECE_LENGTH)]
    pieces = list(dict.fromkeys(cut))[::-1]
    return [pieces[at * len(pieces) // _PIECES] for at in range(min(_PIECES, len(pieces)))]


def alike_key(request: Request, rules: Rules) -> bytes | None:
    """The digest that requests share which differ in identifiers alone, and maybe in more.

    A store finds recordings by it. None for a request that refers to nothing. Route and target are
    left out: a recording may get its route when it is loaded.
    """
    return _alike_key(compared_document(request, rules)) if may_have_references(request) else None


def alike_key_of(recorded: RecordedRequest) -> bytes | None:
    """The `alike_key` of a recorded request."""
    return _alike_key(recorded.compared) if may_have_references(recorded.request) else None


def _alike_key(document: Mapping[str, Json]) -> bytes | None:
    if not refers(document):
        return None
    text = _coarse_text({"body": document.get("body")})
    return hashlib.blake2b(text, digest_size=ALIKE_BYTES, person=b"alike").digest()


def issued_key(identifier: str) -> bytes:
    """The digest by which a store finds the recordings whose answers issued an identifier."""
    return hashlib.blake2b(identifier.encode(), digest_size=ISSUED_BYTES, person=b"issued").digest()


def issued_keys(interaction: Interaction) -> list[bytes]:
    """The digests of the identifiers that an answer issued."""
    return [issued_key(each) for each in sorted(_issued(interaction))]


def meant_recordings(
    recorded: Iterable[Interaction], request: Request, rules: Rules, *, asks: bool
) -> tuple[list[Interaction], set[str]]:
    """The recordings whose requests differ from this one in references alone.

    Returns also the texts that are compared with issued identifiers. Where the request `asks` the
    upstream, its own identifiers are among them.
    """
    asked = compared_document(request, rules)
    meant: list[Interaction] = []
    texts = set(ids.sent_ids(request)) if asks else set[str]()
    for recording in recorded:
        document = compared_document(recording.request, rules, recorded=True)
        if differ_in_references(document, asked):
            meant.append(recording)
            texts.update(_references(document))
    if meant:
        texts.update(_references(asked))
    return meant, texts


def _references(document: Mapping[str, Json]) -> Iterator[str]:
    return (
        body_text.text
        for body_text in body_texts(document)
        if body_text.is_reference and ids.is_token(body_text.text)
    )


def _coarse_key(route: str, asked: Mapping[str, Json]) -> bytes:
    text = _coarse_text(asked)
    return hashlib.blake2b(b"%b\0%b" % (route.encode(), text), digest_size=16).digest()


def _coarse_text(document: Mapping[str, Json]) -> bytes:
    return b"".join(_IN_COARSE_KEY.findall(canonical(dict(document))))
