"""Finds recorded requests that differ from a request only in identifiers.

A conversation with tools sends back identifiers that earlier answers issued: `call_…`, `resp_…`. If
the app generates identifiers, or a turn was live meanwhile, they differ from the recorded ones. A
request matches a recorded request if only references to identifiers differ, and consistently
(`core/correlation/unify.py`).

Requests that differ in identifiers alone share a digest (`alike_key`). The recordings under the
digest of a request are compared with the request value by value. SQL stores keep the digests. A
cassette in memory computes the digests when the first request with references is searched, and
later recordings get theirs when added: most apps send no identifiers.

Issuers of identifiers are looked up in the answers, which are read with the requests. Where nothing
but an issuer is asked for, the answers are searched, until reading all would have been faster.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter

from tapeway.core.correlation import ids
from tapeway.core.correlation.unify import (
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
from tapeway.core.text import no_pause

CACHED_SEARCHES = 4096

MOST_SEARCHES = 50
"""Searches that together take about as long as reading all answers."""

MOST_FILE_SEARCHES = 1
"""The number of searches for recordings in a file, where each search reads all."""

FEW_LOADED = 32
"""So few recordings are read in the event loop: that is quick."""

MOST_ALIKE = 64
"""Of more recordings with one `alike_key`, only the newest are compared."""

FEW_ISSUED = 8
"""Up to this number, identifiers are searched in a request before the texts are read."""

ALIKE_BYTES, ISSUED_BYTES = 20, 12
"""Lengths of `alike_key` and `issued_key`: no other key of a recording is as long."""

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

    Making an index reads no recording: the first search does. The index can be searched in one
    thread while a second thread adds and removes recordings.
    """

    def __init__(
        self,
        interactions: Sequence[AnyInteraction],
        rules: Rules,
        issuers: Mapping[str, int] | None = None,
    ) -> None:
        """`issuers` has the recordings that issued identifiers, where a store has looked them up."""
        self._rules = rules
        self._unread = interactions
        self._keys: dict[int, bytes] = {}
        self._alike: dict[bytes, dict[int, Interaction]] = {}
        self.issued = IssuedIds(self._unread, issuers)

    @property
    def unread(self) -> int:
        """The number of recordings that a search has to read."""
        return max(len(self._unread), self.issued.unread)

    def add(self, interaction: Interaction) -> None:
        """Add a new recording, which is read at once."""
        self.issued.add(interaction)
        self._add(interaction)

    def _add(self, interaction: Interaction) -> None:
        key = alike_key_of(RecordedRequest(interaction.request, self._rules))
        if key is not None:
            self._keys[interaction.index] = key
            self._alike.setdefault(key, {})[interaction.index] = interaction

    def remove(self, index: int) -> None:
        """Forget a replaced or dropped recording, and the identifiers of its answer."""
        self.issued.remove(index)
        if (key := self._keys.pop(index, None)) is not None:
            self._alike.get(key, {}).pop(index, None)

    def issued_in(self, request: Request) -> dict[str, int]:
        """The issued identifiers in a request, each with the issuing recording."""
        issuers = {sent_id: self.issued.issuer_of(sent_id) for sent_id in ids.sent_ids(request)}
        return {identifier: index for identifier, index in issuers.items() if index is not None}

    def find(
        self, request: Request, routes: Collection[str], step: Callable[[], None] = no_pause
    ) -> list[CorrelatedRecording]:
        """The recordings on some routes whose requests differ only in identifiers, in order.

        An identifier of the cassette matches only itself: a request with one matches only
        recordings with the identifier in the same place. The first search reads all recordings,
        and calls `step` after each.
        """
        if not may_have_references(request):
            return []
        asked = compared_document(request, self._rules)
        if (key := _alike_key(asked)) is None:
            return []
        self._read_all(step)
        recordings: list[CorrelatedRecording] = []
        for recording in self._newest_alike(key):
            if recording.request.method != request.method or recording.request.route not in routes:
                continue
            unifier = IdUnifier(self.issued)
            recorded = compared_document(recording.request, self._rules, recorded=True)
            if unifier.unify(recorded, asked):
                recordings.append(CorrelatedRecording(recording, unifier.id_map))
        return recordings

    def _newest_alike(self, key: bytes) -> list[Interaction]:
        """The recordings that a SQL store's index would find, in order."""
        # Copied, since another thread may add recordings meanwhile.
        alike = [*self._alike.get(key, {}).values()]
        left = [
            interaction for interaction in alike if interaction.index not in self.issued.removed
        ]
        return sorted(left, key=attrgetter("index"))[-MOST_ALIKE:]

    def _read_all(self, step: Callable[[], None]) -> None:
        if not self._unread:
            return
        for interaction in self._unread:
            if isinstance(interaction, Interaction):
                self._add(interaction)
            step()
        self.issued.read_all(step)
        self._unread = ()


class IssuedIds:
    """The identifiers that answers issued, each with the first issuing recording.

    Recordings in `removed` do not count.
    """

    def __init__(
        self, loaded: Sequence[AnyInteraction], issuers: Mapping[str, int] | None = None
    ) -> None:
        """With `issuers` no answer is read: they are all that the caller asks for."""
        self._given = loaded
        # Not `lru_cache`: around a method it would be a cycle, and an ejected cassette stay in memory.
        self._found: dict[str, int | None] = {}
        self._issuers: dict[str, list[int]] | None = None
        if issuers is not None:
            self._issuers = {text: [index] for text, index in issuers.items()}
        self._added: dict[str, list[int]] = {}
        self._searches = 0
        self.removed: set[int] = set()

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and self.issuer_of(text) is not None

    @property
    def unread(self) -> int:
        """How many answers are searched for each identifier."""
        return len(self._given) if self._issuers is None else 0

    def add(self, interaction: Interaction) -> None:
        """Add a new recording."""
        for identifier in _issued(interaction):
            self._added.setdefault(identifier, []).append(interaction.index)

    def remove(self, index: int) -> None:
        """Forget a recording that was replaced or dropped."""
        self.removed.add(index)

    def issuer_of(self, text: str) -> int | None:
        """The recording that issued it; a first search in 10,000 of 1 KiB takes milliseconds."""
        if not ids.is_token(text):
            return None
        if text not in self._found or self._found[text] in self.removed:
            if len(self._found) == CACHED_SEARCHES:
                self._found.clear()
            self._found[text] = self._search(text)
        issuer = self._found[text]
        return self._first(self._added.get(text, ())) if issuer is None else issuer

    def read_all(self, step: Callable[[], None] = no_pause) -> dict[str, list[int]]:
        """Read all answers, to keep later calls short."""
        if self._issuers is None:
            issuers: dict[str, list[int]] = {}
            for exchange in self._loaded:
                for text in _issued(exchange):
                    issuers.setdefault(text, []).append(exchange.index)
                step()
            self._issuers = issuers
        return self._issuers

    def _search(self, text: str) -> int | None:
        self._searches += 1
        if self._issuers is not None or self._searches > self._most_searches:
            return self._first(self.read_all().get(text, ()))
        octets, loaded = text.encode(), self._loaded
        if ids.looks_random(text):
            holding = [exchange for exchange in loaded if octets in exchange.response.body]
            holding += self._with_header_ids
        else:
            # Only the field's name makes such a text an identifier.
            quoted = b'"%b"' % octets
            holding = [exchange for exchange in loaded if quoted in exchange.response.body]
            holding = [
                exchange
                for exchange in holding
                if ids.is_under_id_name(quoted, exchange.response.body)
            ]
        left = [exchange for exchange in holding if exchange.index not in self.removed]
        in_order = sorted(left, key=attrgetter("index"))
        return next((exchange.index for exchange in in_order if text in _issued(exchange)), None)

    def _first(self, issuers: Iterable[int]) -> int | None:
        return min((issuer for issuer in issuers if issuer not in self.removed), default=None)

    @cached_property
    def _loaded(self) -> list[Interaction]:
        return [interaction for interaction in self._given if isinstance(interaction, Interaction)]

    @cached_property
    def _most_searches(self) -> int:
        lazy = any(isinstance(exchange, LazyInteraction) for exchange in self._loaded)
        return MOST_FILE_SEARCHES if lazy else MOST_SEARCHES

    @cached_property
    def _with_header_ids(self) -> list[Interaction]:
        return [exchange for exchange in self._loaded if ids.may_have_header_ids(exchange.response)]


def _issued(interaction: Interaction) -> set[str]:
    issued, request = ids.issued_ids(interaction.response), interaction.request
    # Nearly no request holds an identifier of its answer, and reading takes longer than a search.
    if len(issued) <= FEW_ISSUED and not any(
        ids.may_hold(request, identifier) for identifier in issued
    ):
        return issued
    # An identifier that the request held before was chosen by the app.
    return issued - ids.request_tokens(request)


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
    return [issued_key(identifier) for identifier in sorted(_issued(interaction))]


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


def _coarse_text(document: Mapping[str, Json]) -> bytes:
    return b"".join(_IN_COARSE_KEY.findall(canonical(dict(document))))
