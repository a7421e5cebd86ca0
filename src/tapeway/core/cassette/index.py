"""A cassette in memory: an index from match key to recordings, and a cursor for each key.

Finding costs one dictionary look-up however many recordings there are. A take is one run through
the cassette: cursors start at its beginning, and what it recorded first replaces what earlier
takes held for the same request.

The match key: two requests are equal when their keys are.

Route, method, decoded path, query pairs and a canonical body go in; headers do not, unless a rule
names them. What each of those is, `core/subject.py` says; here it becomes a short name.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from tapeway.core.agenttape import lookup
from tapeway.core.cassette import cursors
from tapeway.core.cassette.cursors import Take
from tapeway.core.correlation.index import CorrelationIndex
from tapeway.core.matching import header_distance, rules
from tapeway.core.matching.key import credential_variant, key_digest, request_key
from tapeway.core.matching.rules import NO_RULES, Rules
from tapeway.core.model.cassette import CassetteHead, CursorStep, Recording, StoredCassette
from tapeway.core.model.control import Repeats
from tapeway.core.model.interaction import (
    AnyInteraction,
    ForeignInteraction,
    Interaction,
    exchange_of,
)
from tapeway.core.model.messages import Request


def recording_key(interaction: Interaction, rules: Rules = NO_RULES) -> bytes:
    """The match key of a recording: that of its request, unless it answers in order whatever is asked."""
    if not lookup.answers_in_order(interaction):
        return request_key(interaction.request, rules)
    (name,) = lookup.recording_aliases(interaction, rules)
    return interaction.request.route.encode() + b"\0" + name


def index_keys(interaction: Interaction, rules: Rules = NO_RULES) -> tuple[bytes, ...]:
    """What a store's index has an interaction under: the digest of its match key, on any route.

    Routes are given to recordings when they are loaded, by their origin; an index knows none. Behind
    it come the names that `asked_under` gives a request, for recordings that AgentTape made.
    """
    own = key_digest(recording_key(interaction, rules))
    return tuple(dict.fromkeys((own, *lookup.recording_aliases(interaction, rules))))


def request_aliases(
    request: Request, redacted: Request, origins: Iterable[str], rules: Rules = NO_RULES
) -> tuple[bytes, ...]:
    """What else to look for where nothing is found under a request's own key, the most exact first.

    Only a cassette with recordings of AgentTape's has something there. `request` is as it came, with
    its credentials; `origins` are those that such recordings of its route were made at, none where
    `aliases.are_known` says no. The names tell nothing of it, and are kept nowhere.
    """
    return lookup.request_aliases(request, redacted, origins, rules)


class CassetteIndex:
    """The recordings of one cassette while it is loaded.

    Its rules are those its `meta` states. Raises RulesFault where that cannot be read. Of one that
    is not loaded whole, `other_routes` names the routes of the other recordings.
    """

    def __init__(
        self, name: str, stored: StoredCassette, *, take: int, other_routes: Collection[str] = ()
    ) -> None:
        self.name = name
        self.head: CassetteHead = stored.head
        self.rules: Rules = rules.rules_of_meta(stored.head.meta)
        self.repeats: Repeats = cursors.repeats_of_meta(stored.head.meta)
        self.take = Take(take)
        self._other_routes = other_routes
        self.correlation: CorrelationIndex | None = None
        """Those its answers issued, once somebody has looked for them; kept up to date from then."""
        self._interactions: dict[int, AnyInteraction] = {}
        self._take_of: dict[int, int] = {}
        self._mixed: set[bytes] = set()
        self._next = 0
        self.generation = 0
        """Another number whenever what is held or what it is found under has changed."""
        self._index(stored.interactions)

    def __len__(self) -> int:
        return len(self._interactions)

    def __iter__(self) -> Iterator[AnyInteraction]:
        return iter([self._interactions[index] for index in sorted(self._interactions)])

    def __contains__(self, key: bytes) -> bool:
        return key in self._by_key

    @property
    def is_numbered_by_position(self) -> bool:
        """Whether each recording's number is its position, and none is on its way."""
        return len(self._interactions) == self._next

    def get(self, index: int) -> AnyInteraction | None:
        return self._interactions.get(index)

    def key_of(self, index: int) -> bytes:
        """What a recording is found under."""
        return self._key_of[index]

    def take_of(self, index: int) -> int:
        """The take a recording was made in, 0 for one that was there before."""
        return self._take_of.get(index, 0)

    def snapshot(self) -> list[AnyInteraction]:
        """All that is held at this moment, in any order; cheap enough for the event loop."""
        return list(self._interactions.values())

    def has_route(self, route: str) -> bool:
        """Whether any recording was made on this route."""
        return self._routes[route.encode()] > 0 or route in self._other_routes

    def apply_rules(self, more: Rules, *, saved: bool = False) -> None:
        """Put further rules in force at once: everything is found under its new key from now on.

        What this take has used up stays so. The cost is that of loading the cassette. `saved` says
        that the store has just saved the whole, which gives each recording its position for a number.
        """
        if saved and not self.is_numbered_by_position:
            self._renumber()
        self.rules = rules.merged_rules(self.rules, more)
        self.correlation = None
        self.head = replace(self.head, meta=rules.meta_with_rules(self.head.meta, self.rules))
        self._index([self._interactions[index] for index in sorted(self._interactions)])
        # What were several keys is one now, and its first recordings are not those used up.
        self._mixed = {key for key, found in self._by_key.items() if len(found) > 1}
        before, self.take = self.take, Take(self.take.number, touched=self.take.touched)
        for index in sorted(before.touched & self._key_of.keys()):
            self._count_turn(index, recorded=self._take_of.get(index) == before.number)

    def next(
        self,
        key: bytes,
        repeats: Repeats | None,
        variant: bytes = b"",
        *,
        can_ask: bool = False,
        asked: Request | None = None,
    ) -> Interaction | None:
        """The recording whose turn it is, moving the cursor, or None where there is none (left).

        Without `repeats` it is the cassette's own rule that says what comes after the last one.

        `variant` is the credential it is asked with. One other than the recorded one is taken for the
        same request: another run has another API key. But while the upstream could be asked, a
        second value within one take is a second page, and not for the first one's answer.
        Where recordings differ in their headers, the one nearest to `asked` comes first.
        """
        found = self._alike(key, variant)
        if not found or (can_ask and self._is_other(key, variant)):
            return None
        cursor = self._cursor(key, variant)
        turn = position = self.take.cursors.get(cursor, 0)
        repeats = repeats or self.repeats
        if repeats == "first":
            chosen = cursors.first_recording(found, asked)
        elif asked is not None and len(found) > 1 and self._varies(key):
            nearest = self._nearest(found, asked, repeats)
            if nearest is None:
                return None
            chosen = nearest
        else:
            if turn >= len(found):
                if repeats == "miss":
                    return None
                position = turn % len(found) if repeats == "cycle" else -1
            chosen = found[position]
        self.take.ask(cursor, variant)
        self.take.touched.add(chosen.index)
        return chosen

    def use(self, index: int) -> Interaction | None:
        """What a recording answers over HTTP, used up from then on."""
        found = exchange_of(self._interactions[index])
        if found is not None:
            key, variant = self._key_of[index], credential_variant(found.request)
            self.take.ask(self._cursor(key, variant), variant)
            self.take.touched.add(index)
        return found

    def count(self, key: bytes, variant: bytes = b"") -> int:
        """How many recordings answer this key."""
        return len(self._alike(key, variant))

    def indexes(self, key: bytes, variant: bytes = b"") -> tuple[int, ...]:
        """Which recordings answer this key."""
        return tuple([each.index for each in self._alike(key, variant)])

    def reserve(self) -> int:
        """An index for a recording to come; one that never comes leaves a gap."""
        index, self._next = self._next, self._next + 1
        return index

    def recording(
        self,
        interaction: Interaction,
        key: bytes,
        take: Take,
        *,
        replaces: bool,
        index: int | None = None,
    ) -> Recording:
        """The step that records an answer in a take, under a reserved or a new index.

        Nothing changes yet.

        Until a take has recorded a first durable answer, each step replaces what earlier takes
        held: a failed one leaves that to the next.
        """
        superseded: tuple[int, ...] = ()
        variant = credential_variant(interaction.request)
        if replaces and (key, variant) not in take.recorded:
            superseded = tuple(
                each.index
                for each in self._alike(key, variant)
                if self._take_of.get(each.index, 0) < take.number
            )
        index = self.reserve() if index is None else index
        return Recording(replace(interaction, index=index), superseded)

    def add(self, recording: Recording, key: bytes, take: Take) -> None:
        """Take in a recording that is durable; its request counts as the first to be given it."""
        for index in recording.supersedes:
            self._remove(index)
        interaction = recording.exchange
        index = interaction.index
        if take is not self.take and take.number == self.take.number:
            # A rule came into force while it was asked for.
            take, key = self.take, recording_key(interaction, self.rules)
        self._place(interaction, key)
        self._take_of[index] = take.number
        if self.correlation is not None:
            self.correlation.add(interaction)
        variant = credential_variant(interaction.request)
        take.note_recorded(key, self._cursor(key, variant), variant, index)

    def add_foreign(self, item: ForeignInteraction, supersedes: Iterable[int] = ()) -> None:
        """Take in one of another kind that is durable."""
        for index in supersedes:
            self._remove(index)
            self._interactions.pop(index, None)
        self._interactions[item.index] = item

    def set_takes(self, takes: Mapping[int, int]) -> None:
        """Say in which takes recordings were made that others made."""
        self._take_of.update(takes)

    def set_next_index(self, index: int) -> None:
        """Give the next recording this index."""
        self._next = index

    def cursor_state(self, key: bytes) -> bytes:
        """Where a key stands in this take, as `core.take` writes it."""
        return self.take.key_state(key, [each.index for each in self._by_key.get(key, ())])

    def cursor_step(self, interaction: Interaction, key: bytes, take: Take) -> CursorStep:
        """How a recording of this take moves on where its key stands, for a store to carry out."""
        index, variant = interaction.index, credential_variant(interaction.request)
        variants = {credential_variant(each.request) for each in self._by_key.get(key, ())} | {
            variant
        }
        cursor = key + variant if len(variants) > 1 else key

        def moved(before: bytes | None) -> bytes:
            now = Take(take.number)
            if before is not None:
                now.restore_key(key, before)
            now.note_recorded(key, cursor, variant, index)
            return now.key_state(key, {*now.touched})

        return CursorStep(take.number, key, moved)

    def start_take(self, number: int) -> None:
        """Cursors back to the beginning, everything unused again."""
        self.take = Take(number)
        self._mixed.clear()

    def unused(self) -> list[int]:
        """Indexes of recordings this take has not touched."""
        return sorted(index for index in self._key_of if index not in self.take.touched)

    def unused_count(self) -> int:
        """How many those are, at a cost that grows with what was touched and not with the rest."""
        return len(self._key_of) - len(self._key_of.keys() & self.take.touched)

    def duplicates(self) -> list[list[int]]:
        """Indexes that answer the same request, where there are several."""
        # What answers in order is under one key, but not to the same request.
        told = (found for key, found in self._by_key.items() if lookup.ALIAS_PREFIX not in key)
        return [[each.index for each in found] for found in told if len(found) > 1]

    def stored(self, *, touched_only: bool = False) -> StoredCassette:
        """The cassette as a store keeps it; optionally without what this take did not touch."""
        kept = [
            interaction
            for interaction in self
            if not touched_only
            or exchange_of(interaction) is None
            or interaction.index in self.take.touched
        ]
        return StoredCassette(self.head, tuple(kept))

    def _index(self, interactions: Iterable[AnyInteraction]) -> None:
        self._by_key: dict[bytes, list[Interaction]] = {}
        self._key_of: dict[int, bytes] = {}
        self._by_variant: dict[bytes, dict[bytes, list[Interaction]]] = {}
        self._varied: dict[bytes, bool] = {}
        self._routes: Counter[bytes] = Counter()
        self.aliases = lookup.AliasIndex()
        for interaction in interactions:
            self._next = max(self._next, interaction.index + 1)
            if (exchange := exchange_of(interaction)) is not None:
                self._place(exchange, recording_key(exchange, self.rules))
                self.aliases.add(exchange, self.rules)
            self._interactions[interaction.index] = interaction

    def _renumber(self) -> None:
        numbers = {index: at for at, index in enumerate(sorted(self._interactions))}
        self._interactions = {
            at: replace(self._interactions[index], index=at) for index, at in numbers.items()
        }
        self._take_of = {numbers[index]: take for index, take in self._take_of.items()}
        self.take.touched = {numbers[index] for index in self.take.touched & numbers.keys()}
        self._next = len(numbers)

    def _count_turn(self, index: int, *, recorded: bool) -> None:
        key, interaction = self._key_of[index], exchange_of(self._interactions[index])
        if interaction is not None:
            variant = credential_variant(interaction.request)
            self.take.ask(self._cursor(key, variant), variant)
            if recorded:
                self.take.recorded.add((key, variant))

    def _varies(self, key: bytes) -> bool:
        if (known := self._varied.get(key)) is None:
            known = self._varied[key] = header_distance.vary(self._by_key[key])
        return known or key in self._mixed

    def _nearest(
        self, found: Sequence[Interaction], asked: Request, repeats: Repeats
    ) -> Interaction | None:
        own = header_distance.of_same_caller(asked, found)
        unused = [each for each in own if each.index not in self.take.touched]
        if unused:
            return header_distance.nearest(asked, unused)[0]
        if repeats == "miss":
            return None
        again = header_distance.nearest(asked, own)
        if repeats == "last":
            return again[-1]
        # Each caller goes round its own.
        chosen = min(again, key=lambda each: self.take.again[each.index])
        self.take.again[chosen.index] += 1
        return chosen

    def _tells_apart(self, key: bytes) -> bool:
        """Whether this key was recorded with several credentials, so that they are part of it."""
        return len(self._by_variant.get(key, ())) > 1

    def _cursor(self, key: bytes, variant: bytes) -> bytes:
        return key + variant if self._tells_apart(key) else key

    def _is_other(self, key: bytes, variant: bytes) -> bool:
        recorded_with = self._by_variant.get(key)
        if variant in (recorded_with or (b"",)):
            return False
        return self.take.asked_with(key) not in (None, variant)

    def _alike(self, key: bytes, variant: bytes) -> list[Interaction]:
        if self._tells_apart(key):
            return self._by_variant[key].get(variant, [])
        return self._by_key.get(key, [])

    def _place(self, interaction: Interaction, key: bytes) -> None:
        self.generation += 1
        self._interactions[interaction.index] = interaction
        variant = credential_variant(interaction.request)
        if variant and key not in self._by_variant:
            # Most keys never carry a credential, and need no second index.
            unmarked = self._by_key.get(key)
            self._by_variant[key] = {b"": list(unmarked)} if unmarked else {}
        if self._varied.get(key) is False:
            # Polled for hours, a key has thousands that are all alike.
            self._varied[key] = header_distance.vary([self._by_key[key][0], interaction])
        # In index order, so that a reload serves repeats as this process did.
        insort(self._by_key.setdefault(key, []), interaction, key=_number)
        if key in self._by_variant:
            insort(self._by_variant[key].setdefault(variant, []), interaction, key=_number)
        self._key_of[interaction.index] = key
        self._routes[_route(key)] += 1

    def _remove(self, index: int) -> None:
        key = self._key_of.pop(index, None)
        if key is None:
            return
        self.generation += 1
        removed = exchange_of(self._interactions.pop(index))
        self.aliases.remove(index)
        self._varied.pop(key, None)
        self._take_of.pop(index, None)
        self._routes[_route(key)] -= 1
        _drop(self._by_key, key, index)
        if key in self._by_variant and removed is not None:
            _drop(self._by_variant[key], credential_variant(removed.request), index)
            if not self._by_variant[key]:
                del self._by_variant[key]


def _drop(lists: dict[bytes, list[Interaction]], key: bytes, index: int) -> None:
    found = lists[key]
    del found[bisect_left(found, index, key=_number)]
    if not found:
        del lists[key]


def _number(interaction: Interaction) -> int:
    return interaction.index


def _route(key: bytes) -> bytes:
    return key[: key.index(b"\0")]
