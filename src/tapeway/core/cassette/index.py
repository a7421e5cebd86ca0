"""A cassette in memory: the recordings of each request, and the takes.

The index maps each match key to its recordings, in the order of the cassette; `choice.py` chooses the
recording that answers. Finding a recording costs one dictionary look-up among any number. A request
may hold credentials that differ from run to run: `credential_index.py` finds its recordings.

A take is one run through the cassette, with cursors that start at 0 and the set of used
recordings. A take's first recording of a request replaces the recordings of earlier takes;
further ones are appended.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast

from tapeway.core.agenttape.lookup import ALIAS_PREFIX, AliasIndex
from tapeway.core.cassette.branches import Base, Inherited, Layer, base_of_meta, inherit
from tapeway.core.cassette.choice import CallsModel, Choice, Why, calls_no_model
from tapeway.core.cassette.credential_index import CredentialIndex, FoundKey, credential_places
from tapeway.core.cassette.cursors import (
    Take,
    repeats_of_meta,
    write_key,
)
from tapeway.core.cassette.keyed_recordings import (
    HeldRecordings,
    KeyedRecordings,
    as_recordings,
    indexes_of,
    with_recording,
)
from tapeway.core.cassette.recorded_bodies import RecordedBodies, SelectingHead, selecting_head
from tapeway.core.cassette.recording_keys import recording_key
from tapeway.core.correlation.index import CorrelationIndex
from tapeway.core.http.routing import DEFAULT_ROUTE
from tapeway.core.matching.credential_fields import may_have_credential_fields
from tapeway.core.matching.headers import distance
from tapeway.core.matching.headers.conditions import are_told_apart, of_one_request
from tapeway.core.matching.key import KeyAndBody, key_and_body, key_on_route
from tapeway.core.matching.placeholders import SecretDigests
from tapeway.core.matching.received_request import ReceivedRequest
from tapeway.core.matching.recorded_request import RecordedRequest
from tapeway.core.matching.rules import (
    Rules,
    merged_rules,
    meta_with_rules,
    rules_of_meta,
)
from tapeway.core.misses.neighbours import Neighbours
from tapeway.core.model.cassette import CassetteHead, CursorStep, Recording, StoredCassette
from tapeway.core.model.control import Repeats
from tapeway.core.model.interaction import (
    AnyInteraction,
    ForeignInteraction,
    Interaction,
    exchange_of,
)
from tapeway.core.model.lazy_interaction import LazyInteraction
from tapeway.core.model.messages import Headers, Request
from tapeway.core.model.request_fields import EDITION
from tapeway.core.redaction.known_values import RecordedPlaceholders

_BEHIND = 2**60
"""The places of recordings of bases begin here, behind all of the cassette itself."""


class CassetteIndex:
    """The recordings of one loaded cassette, and the current take.

    The rules come from `meta`. Raises RulesFault for unreadable rules. `calls_model` tells which
    requests a recording answers again in the take that made or used the recording. If only a part of the cassette
    is loaded, `other_routes` are the routes of recordings outside `stored`, `places` is the order of
    the part, by index. `layers` are the recordings of the bases, the nearest base first: they answer
    what no recording of the cassette itself answers.
    """

    def __init__(
        self,
        name: str,
        stored: StoredCassette,
        *,
        take: int,
        other_routes: Collection[str] = (),
        places: Mapping[int, int] | None = None,
        calls_model: CallsModel = calls_no_model,
        layers: Sequence[Layer] = (),
    ) -> None:
        self.name = name
        self.head: CassetteHead = stored.head
        self.rules: Rules = rules_of_meta(stored.head.meta)
        self.base: Base | None = base_of_meta(stored.head.meta)
        self.digests = SecretDigests(stored.head.run_id)
        self.calls_model = calls_model
        self.take = Take(take)
        self.correlation: CorrelationIndex | None = None
        """Created by the first search for correlated recordings, and kept up to date afterwards."""
        self._neighbours: Neighbours | None = None
        self._made = object()
        self._slot_takes: dict[int, Take] = {}
        self._credentials: CredentialIndex | None = None
        self.generation = 0
        """Changes with the recordings and the keys."""
        self._other_routes = other_routes
        self._interactions: dict[int, AnyInteraction] = {}
        self._take_of: dict[int, int] = {}
        self._place_of: dict[int, int] = {} if places is None else {**places}
        self._next_index = 0
        self.layers = layers
        self.inherited: Mapping[int, Inherited] = inherit(layers)
        """The recordings of the bases, by their indexes here."""
        self._build(stored)
        self.choice = self._new_choice()

    def __len__(self) -> int:
        return len(self._interactions)

    def __iter__(self) -> Iterator[AnyInteraction]:
        return map(self._interactions.__getitem__, self._in_order())

    def __contains__(self, key: bytes) -> bool:
        return key in self._by_key

    @property
    def is_numbered_by_position(self) -> bool:
        """Whether each index is a position, with no gaps and no reserved indexes."""
        return len(self._interactions) == self._next_index

    def get(self, index: int) -> AnyInteraction | None:
        if index < 0:
            found = self.inherited.get(index)
            return None if found is None else found.item
        return self._interactions.get(index)

    def in_base(self, index: int) -> tuple[str, int] | None:
        """The base that a recording is in, and the index there; None for the cassette's own."""
        found = self.inherited.get(index)
        return None if found is None else (found.cassette, found.index)

    def key_of(self, index: int) -> bytes:
        """The match key of a recording."""
        return self._key_of[index]

    def place_of(self, index: int) -> int:
        """The place of a recording in the order of the cassette."""
        return self._place(index)

    def take_of(self, index: int) -> int:
        """The take that made a recording, 0 for an older recording."""
        return self._take_of.get(index, 0)

    def indexes(self, key: bytes) -> tuple[int, ...]:
        """The recordings with this match key."""
        return indexes_of(self._by_key.get(key))

    def snapshot(self) -> list[AnyInteraction]:
        """All interactions in any order, with those of the bases; cheap enough for the event loop."""
        return [*self._interactions.values(), *[found.item for found in self.inherited.values()]]

    @property
    def version(self) -> object:
        """A value that changes with the recordings, the keys and the rules."""
        return self._made, self.generation

    def neighbours(self) -> Neighbours:
        """Where recordings near to a request are found; made by the first call."""
        if self._neighbours is None:
            self._neighbours = Neighbours(self.snapshot())
        return self._neighbours

    def index_credentials(self) -> None:
        """Index the recordings that hold credentials, which the first search would do otherwise.

        Each of these recordings is read.
        """
        self._credential_index()

    @property
    def has_credential_index(self) -> bool:
        """Whether a new recording that holds credentials is read at once."""
        return self._credentials is not None

    @property
    def placeholders(self) -> RecordedPlaceholders:
        """The placeholders in recorded requests, by which their values are met again."""
        return self._credential_index().placeholders

    @property
    def placeholders_in_large_bodies(self) -> Sequence[tuple[str, ...]]:
        """Those in the large bodies of recorded requests, each set of them once, the last first."""
        return [*reversed(self._credential_index().in_large_bodies)]

    def parts(self) -> list[object]:
        """The parts of the index, to be freed one by one."""
        return [*self.snapshot(), *self._by_key.values()]

    def has_route(self, route: str) -> bool:
        """Whether any recording was made on a route. No route counts as `default`."""
        made = self._routes[route.encode()] + (self._routes[b""] if route == DEFAULT_ROUTE else 0)
        return made > 0 or route in self._other_routes

    @property
    def routes(self) -> set[str]:
        """The routes of the recordings."""
        made = {route.decode() for route, count in self._routes.items() if count}
        return made | {*self._other_routes}

    def match_key(self, request: Request) -> KeyAndBody:
        """The match key of a received request, and the parsed body."""
        if request.file is None and (head := selecting_head(request)) is not None:
            known = self.known_key(head, request.body, request.route)
            if known is not None:
                return known
        return key_and_body(request, self.rules)

    def known_key(self, head: SelectingHead, body: bytes, route: str) -> KeyAndBody | None:
        """The match key of a request whose body was recorded on the route, or was asked before.

        Such a body is known by the bytes and is not parsed again. None for an unknown body.
        """
        if self.rules.match or (known := self.bodies.key_of(head, body)) is None:
            return None
        return KeyAndBody(key_on_route(known, route), None, self.rules)

    def remember_body(self, request: Request, key: bytes, interaction: Interaction) -> None:
        """Remember the bytes of an answered request's body with the key."""
        if self.rules.match:
            return
        if isinstance(interaction, LazyInteraction):
            self.bodies.add_asked(request, key)
        elif self.take_of(interaction.index):
            # The bodies of loaded recordings are known already.
            self.bodies.add(interaction, self.key_of(interaction.index))

    def asked(self, request: Request, keyed: KeyAndBody | None = None) -> ReceivedRequest:
        """A received request under the rules and the salt of the cassette."""
        if keyed is None or keyed.rules is not self.rules:
            keyed = self.match_key(request)
        return ReceivedRequest(request, self.rules, self.digests, keyed)

    def find(self, asked: ReceivedRequest, routes: Sequence[str]) -> FoundKey | None:
        """The key of the recordings that answer a request on one of some routes, or None.

        First the request as received; then the recordings with credentials are compared. A deciding
        field that recordings do not hold, since their recorder did not know it, does not decide.
        """
        found_key = self._find(asked, routes)
        if found_key is None and (first := asked.of_first_edition) is not None:
            found_key = self._find(first, routes)
            if found_key is not None and not self._is_of_first_edition(found_key.key):
                return None
        return found_key

    def _is_of_first_edition(self, key: bytes) -> bool:
        return all(recording.request.edition < EDITION for recording in self.recordings(key))

    def _find(self, asked: ReceivedRequest, routes: Sequence[str]) -> FoundKey | None:
        if asked.key in self._by_key and asked.request.route in routes:
            return FoundKey(asked.key)
        for route in routes:
            if (key := key_on_route(asked.key, route)) in self._by_key:
                return FoundKey(key)
        index = self._credential_index()
        for route in routes:
            if (found_key := index.find(asked, route, self._by_key)) is not None:
                return found_key
        return None

    def choose(
        self,
        found_key: FoundKey,
        take: Take,
        repeats: Repeats | None,
        asked: ReceivedRequest | None = None,
        *,
        can_ask: bool = False,
        known: Collection[int] | None = None,
    ) -> Interaction | Why:
        """The recording under a key that answers next, counted as used; see `Choice.choose`."""
        parts = self._parts(found_key.key) if self.inherited else [self._by_key.get(found_key.key)]
        why = Why()
        for held in parts:
            chosen = self.choice.choose(
                held, found_key, take, repeats, asked, can_ask=can_ask, known=known
            )
            if not isinstance(chosen, Why):
                return chosen
            why = Why((*why.recordings, *chosen.recordings), chosen.outdated)
            if why.outdated is not None:
                # What stands below is older still.
                break
        return why

    def _parts(self, key: bytes) -> list[HeldRecordings]:
        """The recordings of a key: those of the cassette itself, then those of each base."""
        layers: dict[int, KeyedRecordings] = {}
        for recording in self.recordings(key):
            found = self.inherited.get(recording.index)
            layer = -1 if found is None else found.layer
            layers.setdefault(layer, KeyedRecordings(self._place_of)).add(recording)
        return [layers[layer] for layer in sorted(layers)]

    def next_in_order(
        self,
        key: bytes,
        take: Take,
        repeats: Repeats | None,
        caller: Callable[[], bytes] | None,
        headers: Callable[[], Headers] | None,
    ) -> Interaction | None:
        """The recording of an equal request that answers next; see `Choice.in_order`.

        None for a recording of a base too: `choose` finds it.
        """
        if (held := self.held(key)) is None:
            return None
        chosen = self.choice.in_order(held, key, take, repeats, caller, headers)
        return None if chosen is None or chosen.index in self.inherited else chosen

    def held(self, key: bytes) -> HeldRecordings:
        """The recordings with this match key, for `choice`: the cassette's own, if it has any."""
        if self.inherited and (parts := self._parts(key)):
            return parts[0]
        return self._by_key.get(key)

    def left_of_base(self, take: Take) -> Sequence[Interaction]:
        """The recordings of the base that a take has not used, if they are to answer before the service.

        In order. Empty where the base has no `until`.
        """
        if self.base is None or self.base.until is None:
            return ()
        return [
            exchange
            for index, found in self.inherited.items()
            if found.layer == 0 and index not in take.touched
            if (exchange := exchange_of(found.item)) is not None
        ]

    def next_of_base(self, request: Request, take: Take) -> Interaction | None:
        """The base's next recording of the path, if the base answers by position; counted as used."""
        if self.base is None or not self.base.positional:
            return None
        asked = _called(request)
        for recording in self.left_of_base(take):
            if _called(recording.request) == asked:
                take.use(self._key_of[recording.index], recording.index)
                return recording
        return None

    def recordings(self, key: bytes) -> Sequence[Interaction]:
        """The recordings with this match key, in the order of the cassette."""
        held = as_recordings(self._by_key.get(key), self._place_of)
        return () if held is None else held.all

    def count_write(self, route: str, take: Take) -> None:
        """Count a write that was asked live: earlier takes no longer answer for its route."""
        self.take_now(take).writes[write_key(route)] += 1

    def use(self, index: int, take: Take) -> Interaction | None:
        """An HTTP recording, counted as the next of its key in a take."""
        item = self.get(index)
        exchange = None if item is None else exchange_of(item)
        if exchange is not None:
            take.use(self._key_of[index], index)
        return exchange

    def touch(self, index: int, take: Take) -> None:
        """Count a recording, unless it was replaced meanwhile, as used in a take."""
        if index in self._key_of:
            take.touch((index,))

    def reserve(self) -> int:
        """Reserve an index for a recording; an unused index leaves a gap."""
        index, self._next_index = self._next_index, self._next_index + 1
        return index

    def give_back(self, index: int) -> None:
        """Use a reserved index for the next recording after all, if none was reserved since."""
        if index + 1 == self._next_index:
            self._next_index = index

    def set_next_index(self, index: int) -> None:
        """Give the next recording this index."""
        self._next_index = index

    def before(self, interaction: Interaction, key: bytes) -> Interaction | None:
        """The last recording of the same request by the same caller."""
        asks = distance.caller(interaction.request.credentials)
        for recording in reversed(self._not_told_apart(interaction, key)):
            if distance.caller(recording.request.credentials) == asks:
                return recording if self._interactions[recording.index] is recording else None
        return None

    def make_recording(
        self,
        interaction: Interaction,
        key: bytes,
        take: Take,
        *,
        replaces: bool,
        index: int | None = None,
        instead: Iterable[int] = (),
    ) -> Recording:
        """The recording of an answer, under a reserved or a new index, for a store to write.

        `instead` are recordings of the same request with other identifiers. The new recording
        replaces these if no earlier recording has the key.

        Nothing changes here before `add`. Until the first recording of a take is durable, each
        supersedes the earlier takes: after a failed write the next recording does.
        """
        superseded = self.earlier(interaction, key, take) or tuple(instead) if replaces else ()
        index = self.reserve() if index is None else index
        made = interaction if interaction.index == index else replace(interaction, index=index)
        return Recording(made, superseded)

    def earlier(self, interaction: Interaction, key: bytes, take: Take) -> tuple[int, ...]:
        """The recordings of earlier takes that a new recording replaces, in order.

        Empty once the take has recorded a new answer to the request. Recordings that the take found
        unchanged belong to the take.
        """
        if key in take.recorded_keys and not self._is_first(interaction, key, take):
            return ()
        earlier = self._earlier(interaction, key, take)
        return earlier or self._with_another_credential(interaction, key, take)

    def _earlier(self, interaction: Interaction, key: bytes, take: Take) -> tuple[int, ...]:
        """The recordings of earlier takes with a key, without those that headers tell apart."""
        return tuple(
            [
                recording.index
                for recording in self._not_told_apart(interaction, key)
                if self.is_earlier(recording.index, take)
            ]
        )

    def _is_first(self, interaction: Interaction, key: bytes, take: Take) -> bool:
        """Whether headers tell the recording apart from all of this take under the key."""
        held = self._by_key.get(key)
        if not interaction.request.varied and not (
            isinstance(held, KeyedRecordings) and held.has_conditions
        ):
            return False
        return all(
            self.is_earlier(recording.index, take)
            for recording in self._not_told_apart(interaction, key)
        )

    def _not_told_apart(self, interaction: Interaction, key: bytes) -> list[Interaction]:
        """The recordings of a key that headers do not tell apart from a recording."""
        held = [recording for recording in self.recordings(key) if recording.index >= 0]
        ignored, keyed = self.rules.ignore_vary, self._by_key.get(key)
        if not interaction.request.varied and not (
            isinstance(keyed, KeyedRecordings) and keyed.has_conditions
        ):
            return held
        return [
            recording for recording in held if not are_told_apart(recording, interaction, ignored)
        ]

    def _with_another_credential(
        self, interaction: Interaction, key: bytes, take: Take
    ) -> tuple[int, ...]:
        """Recordings of earlier takes with a single different credential: a changed API key."""
        credentials, request = self._credentials, interaction.request
        # Nearly always neither a recording nor the request holds a credential.
        none_held = credentials is not None and credentials.is_empty
        if none_held and not may_have_credential_fields(request):
            return ()
        places = credential_places(RecordedRequest(request, self.rules), key)
        if places is None:
            return ()
        others = self._credential_index().others(key, places, self._by_key)
        takes = [
            earlier for other in others if (earlier := self._earlier(interaction, other, take))
        ]
        return takes[0] if len(takes) == 1 else ()

    def is_earlier(self, index: int, take: Take) -> bool:
        """Whether a recording was made in an earlier take, and not kept in this take."""
        return index >= 0 and self.take_of(index) < take.number and index not in take.kept

    def may_go_on(self, index: int, take: Take) -> bool:
        """Whether a take's recording is still there, and no other take has kept the recording."""
        takes = [self.take, *self._slot_takes.values()]
        kept = [earlier_take.number for earlier_take in takes if index in earlier_take.kept]
        return index in self._key_of and all(number == take.number for number in kept)

    def keep(self, index: int, take: Take) -> None:
        """Count a request that the upstream answered as recorded."""
        now = self.take_now(take)
        self.use(index, now)
        now.kept.add(index)

    def take_now(self, take: Take) -> Take:
        """A take as it goes on; another object where rules changed while the upstream was called."""
        now = self._slot_takes.get(take.number, self.take)
        return now if now.number == take.number else take

    def add(
        self,
        recording: Recording,
        key: bytes,
        take: Take,
        variant: bytes = b"",
        mark: bytes = b"",
        *,
        goes_on: bool = False,
    ) -> None:
        """Add a durable HTTP exchange. The recorded request counts as a use.

        `variant` is a digest of the request's credential fields, `mark` what its client repeats when
        it retries the call. A recording that `goes_on` supersedes the recording of an earlier part of
        the answer.
        """
        interaction = cast(Interaction, recording.interaction)
        place = None
        if interaction.index in self._key_of:
            # Met in the log of the store already, where it has its place.
            place, recording = self._place(interaction.index), Recording(interaction)
            self._remove(interaction.index)
        places = [
            self._place(superseded)
            for superseded in recording.supersedes
            if superseded in self._key_of
        ]
        for index in recording.supersedes:
            self._remove(index)
        if recording.supersedes:
            self._place_of[interaction.index] = min(places, default=interaction.index)
        elif place not in (None, interaction.index):
            self._place_of[interaction.index] = place
        if interaction.again:
            take.places[interaction.index] = 1 + interaction.again
        if (now := self.take_now(take)) is not take:
            take, key = now, recording_key(interaction, self.rules)
        self._put(interaction, key)
        self._take_of[interaction.index] = take.number
        if self.correlation is not None:
            self.correlation.add(interaction)
        take.count_recording(key, variant, interaction.index, mark, goes_on=goes_on)

    def add_foreign(self, item: ForeignInteraction, supersedes: Iterable[int] = ()) -> None:
        """Add a durable interaction of a kind other than HTTP."""
        for index in supersedes:
            self._remove(index)
            self._interactions.pop(index, None)
        self._interactions[item.index] = item

    def put(self, item: AnyInteraction, key: bytes | None, *, place: int, take: int) -> None:
        """Add or replace a recording as a store has it; without a `key` it is computed."""
        index = item.index
        self.drop(index)
        self._next_index = max(self._next_index, index + 1)
        if (exchange := exchange_of(item)) is None:
            self._interactions[index] = item
            return
        if place != index:
            self._place_of[index] = place
        if take:
            self._take_of[index] = take
        self._put(exchange, recording_key(exchange, self.rules) if key is None else key)

    def drop(self, index: int) -> None:
        """Leave out a recording that a store has not any more, if it is there."""
        self._remove(index)
        self._interactions.pop(index, None)

    def headers_are_known(self, key: bytes) -> bool:
        """Whether nothing more is read to know whether the recordings of a key differ in headers."""
        held = self._by_key.get(key)
        return not isinstance(held, KeyedRecordings) or held.headers_are_known

    def compare_headers(self, key: bytes) -> None:
        """Find out whether the recordings of a key differ in headers, for which each is read."""
        held = self._by_key.get(key)
        if isinstance(held, KeyedRecordings):
            _ = held.headers_differ

    def begin(self, head: CassetteHead) -> None:
        """Give an empty cassette the head that came with the first interactions."""
        self.head = head
        self.rules, self.base = rules_of_meta(head.meta), base_of_meta(head.meta)
        self.choice = self._new_choice()

    def apply_rules(self, more: Rules, *, saved: bool = False) -> None:
        """Add rules; every recording gets its new key.

        Recordings used in this take stay used. The cost is that of loading the cassette. `saved`
        means that the store has just saved the whole cassette and numbered recordings by
        position.
        """
        self.change_rules(merged_rules(self.rules, more), saved=saved)

    def change_rules(self, rules: Rules, *, saved: bool = False) -> None:
        """Put these rules in the place of those in force, as `apply_rules` adds some."""
        if saved and not self.is_numbered_by_position:
            self._renumber()
        self.rules = rules
        self.head = replace(self.head, meta=meta_with_rules(self.head.meta, self.rules))
        self.correlation = self._credentials = self._neighbours = None
        self._build(self.stored())
        # Recordings of several old keys may share a new key: used ones need not come first.
        merged = {key for key, held in self._by_key.items() if len(indexes_of(held)) > 1}
        self.choice = self._new_choice(merged)
        self.take = self._rekeyed(self.take)
        self._slot_takes = {slot: self._rekeyed(take) for slot, take in self._slot_takes.items()}

    def drop_left_behind(self, going_on: Collection[int] = ()) -> tuple[int, ...]:
        """Remove the surplus recordings of earlier takes, and return the indexes.

        A take that ends and found a recording unchanged may have asked fewer times than an earlier
        take. The further recordings of the request are surplus.
        """
        takes = [self.take, *self._slot_takes.values()]
        left = self.left_behind([take for take in takes if take.number not in going_on])
        for index in left:
            self._remove(index)
        return tuple(sorted(left))

    def left_behind(self, takes: Iterable[Take]) -> set[int]:
        """The recordings that some takes should have recorded anew."""
        return {
            index
            for take in takes
            for equal in take.kept & self._key_of.keys()
            if (kept := exchange_of(self._interactions[equal])) is not None
            for index in self.earlier(kept, self._key_of[equal], take)
        }

    def start_take(self, number: int) -> None:
        """Begin a new take: all cursors at 0, everything unused."""
        self.take = Take(number)
        self._slot_takes.clear()
        self.choice = self._new_choice()

    def running(self, number: int | None) -> Take:
        """The take with this number: the cassette's own, or one of a slot, which may begin now.

        None stands for the cassette's own.
        """
        if number is None or number == self.take.number:
            return self.take
        return self._slot_takes.setdefault(number, self.take.of_slot(number))

    def end_slot_takes(self, running: Collection[int]) -> None:
        """Forget the takes of slots except `running`. Their used recordings stay used."""
        for number in self._slot_takes.keys() - running:
            del self._slot_takes[number]

    def set_takes(self, takes: Mapping[int, int]) -> None:
        """Set the takes of recordings, by index, as noted by other instances."""
        self._take_of.update(takes)

    def cursor_state(self, key: bytes, take: Take) -> bytes:
        """The state of a key in a take, for other instances."""
        return take.key_state(key, self.indexes(key))

    def cursor_step(
        self,
        interaction: Interaction,
        key: bytes,
        take: Take,
        variant: bytes = b"",
        mark: bytes = b"",
        *,
        goes_on: bool = False,
    ) -> CursorStep:
        """The step by which a shared store moves a key's cursor together with a recording."""
        index = interaction.index

        def moved(before: bytes | None) -> bytes:
            after = Take(take.number)
            if before is not None:
                after.restore_key(key, before)
            after.count_recording(key, variant, index, mark, goes_on=goes_on)
            if interaction.again:
                after.places[index] = 1 + interaction.again
            return after.key_state(key, {*after.touched})

        return CursorStep(take.number, key, moved)

    def unused(self, used: Collection[int] | None = None) -> list[int]:
        """Indexes of the recordings this take has not used, or that are not among the `used`."""
        own = self._key_of.keys() - self.inherited.keys()
        return sorted(own.difference(self.take.used if used is None else used))

    def unused_count(self, used: Collection[int] | None = None) -> int:
        """The number of unused recordings; for this take it costs the same however many there are."""
        if used is None and not self.inherited:
            return len(self._key_of) - len(self.take.used)
        own = self._key_of.keys() - self.inherited.keys()
        return len(own.difference(self.take.used if used is None else used))

    def duplicates(self) -> list[list[int]]:
        """The indexes of recordings that answer equal requests, by group."""
        # Recordings that answer in order share a key, but not a request. In a thread others are added.
        items, ignored = list(self._by_key.items()), self.rules.ignore_vary
        return [
            [interaction.index for interaction in group if interaction.index >= 0]
            for key, held in items
            if isinstance(held, KeyedRecordings) and ALIAS_PREFIX not in key
            for group in (of_one_request(held.all, ignored) if held.has_conditions else [held.all])
            if sum(interaction.index >= 0 for interaction in group) > 1
        ]

    def stored(self, *, touched_only: bool = False) -> StoredCassette:
        """The cassette as it is stored, optionally without the recordings unused in this take."""
        kept = [
            interaction
            for interaction in self
            if not touched_only
            or exchange_of(interaction) is None
            or interaction.index in self.take.used
        ]
        return StoredCassette(self.head, tuple(kept))

    def _new_choice(self, merged: Collection[bytes] = ()) -> Choice:
        repeats = repeats_of_meta(self.head.meta)
        return Choice(
            *(self.rules, repeats, self.digests, self._take_of),
            calls_model=self.calls_model,
            merged=merged,
        )

    def _credential_index(self) -> CredentialIndex:
        if self._credentials is None:
            exchanges = [exchange for exchange in map(exchange_of, self.snapshot()) if exchange]
            keyed = ((exchange, self._key_of[exchange.index]) for exchange in exchanges)
            self._credentials = CredentialIndex(keyed, self.rules, self.head.run_id)
        return self._credentials

    def _rekeyed(self, before: Take) -> Take:
        """A take with cursors under the new keys, counted from the used recordings."""
        take = Take(
            before.number,
            touched=before.touched,
            kept=before.kept,
            repeated=before.repeated,
            writes=before.writes,
            used=before.used,
            faults=before.faults,
        )
        for index in sorted(before.touched & self._key_of.keys()):
            key = self._key_of[index]
            take.count_request(key, b"")
            if self._take_of.get(index) == before.number:
                take.recorded_keys.add(key)
        return take

    def _build(self, stored: StoredCassette) -> None:
        self._by_key: dict[bytes, Interaction | KeyedRecordings] = {}
        self._key_of: dict[int, bytes] = {}
        self._routes: Counter[bytes] = Counter()
        self.aliases, self.bodies = AliasIndex(), RecordedBodies()
        for interaction in stored.interactions:
            self._next_index = max(self._next_index, interaction.index + 1)
            if (exchange := exchange_of(interaction)) is not None:
                key = stored.keys.get(interaction.index) or recording_key(exchange, self.rules)
                self._put(exchange, key)
                if not self.rules.match and not isinstance(exchange, LazyInteraction):
                    self.bodies.add(exchange, key)
            self._interactions[interaction.index] = interaction
        for place, found in enumerate(self.inherited.values(), _BEHIND):
            self._inherit(found, place)

    def _inherit(self, found: Inherited, place: int) -> None:
        self._place_of[found.item.index] = place
        if (exchange := exchange_of(found.item)) is not None:
            layer = self.layers[found.layer]
            known = layer.keys.get(found.index) if layer.rules == self.rules else None
            self._index(exchange, known or recording_key(exchange, self.rules))

    def _renumber(self) -> None:
        positions = {index: at for at, index in enumerate(self._in_order())}
        self._place_of.clear()
        own = positions
        positions = {**own, **{index: index for index in self.inherited}}
        before, self._interactions = self._interactions, {}
        for index, at in own.items():
            self._interactions[at] = replace(before[index], index=at)
        self._take_of = {positions[index]: take for index, take in self._take_of.items()}
        for used in (self.take, *self._slot_takes.values()):
            used.touched = {positions[index] for index in used.touched & positions.keys()}
            used.repeated = {positions[index] for index in used.repeated & positions.keys()}
            used.kept = {positions[index] for index in used.kept & positions.keys()}
            used.marks = {
                key: {mark: positions[at] for mark, at in marks.items() if at in positions}
                for key, marks in used.marks.items()
            }
        moved = {positions[index] for index in self.take.used & positions.keys()}
        self.take.used.clear()
        self.take.used.update(moved)
        self._next_index = len(own)

    def _in_order(self) -> list[int]:
        """The indexes in the order of the cassette."""
        return sorted(self._interactions, key=self._place)

    def _place(self, index: int) -> int:
        """The place of a recording: of the first replaced recording, or else of its index."""
        return self._place_of.get(index, index)

    def _put(self, interaction: Interaction, key: bytes) -> None:
        self._interactions[interaction.index] = interaction
        self._index(interaction, key)

    def _index(self, interaction: Interaction, key: bytes) -> None:
        self.generation += 1
        self._by_key[key] = with_recording(self._by_key.get(key), interaction, self._place_of)
        if self._credentials is not None:
            self._credentials.add(interaction, key)
        if self._neighbours is not None:
            self._neighbours.add(interaction)
        self._key_of[interaction.index] = key
        self._routes[_route(key)] += 1
        if interaction.stored_keys:
            self.aliases.add(interaction, self.rules, self.head.meta)

    def _remove(self, index: int) -> None:
        key = self._key_of.pop(index, None)
        if key is None:
            return
        self.generation += 1
        exchange = exchange_of(self._interactions.pop(index))
        self.aliases.remove(index)
        if self.correlation is not None:
            self.correlation.remove(index)
        self._take_of.pop(index, None)
        self.take.used.discard(index)
        self._routes[_route(key)] -= 1
        if exchange is not None:
            if self._neighbours is not None:
                self._neighbours.remove(exchange)
            held = self._by_key[key]
            if isinstance(held, KeyedRecordings):
                held.remove(exchange)
            self.bodies.discard(exchange)
            if isinstance(held, Interaction) or not held.all:
                del self._by_key[key]
                if self._credentials is not None:
                    self._credentials.remove(key)
        self._place_of.pop(index, None)


def _called(request: Request) -> tuple[str, str, str]:
    return request.route, request.method, request.target.partition("?")[0]


def _route(key: bytes) -> bytes:
    return key[: key.index(b"\0")]
