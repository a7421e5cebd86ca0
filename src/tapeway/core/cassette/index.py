"""A cassette in memory: finds the recording that answers a request.

The index maps each match key to its recordings, in the order of the cassette. A request gets the
recording at the key's cursor, and the cursor moves on. After the last recording the cassette's
repeat rule decides. Finding a recording costs one dictionary look-up among any number.

A take is one run through the cassette, with cursors that start at 0 and the set of used
recordings. A take's first recording of a request replaces the recordings of earlier takes;
further ones are appended.

There are two refinements. A request may hold credentials that differ from run to run
(`credential_index.py`). And if recordings of one key differ in headers, the unused recording with
the nearest headers comes first.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast

from tapeway.core.agenttape.lookup import ALIAS_PREFIX, AliasIndex
from tapeway.core.cassette.credential_index import CredentialIndex, FoundKey, credential_places
from tapeway.core.cassette.cursors import (
    Take,
    at_cursor,
    first_recording,
    repeats_of_meta,
    write_key,
)
from tapeway.core.cassette.keyed_recordings import (
    KeyedRecordings,
    as_recordings,
    indexes_of,
    with_recording,
)
from tapeway.core.cassette.recorded_bodies import RecordedBodies, SelectingHead, selecting_head
from tapeway.core.cassette.recording_keys import recording_key
from tapeway.core.correlation.index import CorrelationIndex
from tapeway.core.http.routing import DEFAULT_ROUTE
from tapeway.core.http.sdk_conventions import attempt_number, call_mark
from tapeway.core.matching.credential_fields import may_have_credential_fields
from tapeway.core.matching.headers import distance
from tapeway.core.matching.headers.conditions import are_told_apart, is_for, of_one_request
from tapeway.core.matching.key import KeyAndBody, key_and_body, key_on_route
from tapeway.core.matching.placeholders import SecretDigests
from tapeway.core.matching.received_request import ReceivedRequest
from tapeway.core.matching.recorded_request import RecordedRequest
from tapeway.core.matching.rules import (
    Rules,
    is_reused,
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
from tapeway.errors import DocumentAway, StoreError

CallsModel = Callable[[Request], bool]
"""Whether a request calls a model, and leaves nothing behind at the service."""


def calls_no_model(request: Request) -> bool:
    """For an index that only mode `replay` and tools look into."""
    return False


class CassetteIndex:
    """The recordings of one loaded cassette, and the current take.

    The rules come from `meta`. Raises RulesFault for unreadable rules. `calls_model` tells which
    requests a recording answers again in the take that made or used the recording. If only a part of the cassette
    is loaded, `other_routes` are the routes of recordings outside `stored`, `places` is the order of
    the part, by index.
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
    ) -> None:
        self.name = name
        self.calls_model = calls_model
        self.head: CassetteHead = stored.head
        self.rules: Rules = rules_of_meta(stored.head.meta)
        self.repeats: Repeats = repeats_of_meta(stored.head.meta)
        self.digests = SecretDigests(stored.head.run_id)
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
        self._merged_keys: set[bytes] = set()
        self.repeated: set[int] = set()
        """Indexes of models' answers that a take has recorded and then repeated."""
        self._answers_again: dict[int, tuple[Interaction, bool]] = {}
        """Whether recordings answer again in one take, remembered by recording."""
        self._next_index = 0
        self._build(stored)

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
        return self._interactions.get(index)

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
        """All interactions in any order; cheap enough for the event loop."""
        return list(self._interactions.values())

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

    def next(
        self,
        found_key: FoundKey,
        take: Take,
        repeats: Repeats | None,
        asked: ReceivedRequest | None = None,
        *,
        can_ask: bool = False,
        known: Collection[int] | None = None,
    ) -> Interaction | None:
        """Choose the recording that answers next in a take, and count it as used; None if none is left.

        `repeats` is the repeat rule, None for the cassette's. If recordings differ in
        headers, the recording nearest to `asked` comes first.

        With `can_ask` the upstream can be called instead, so the result is also None in three
        cases. Another caller made the recording in this take. A credential field has its second
        value in this take, perhaps the token of a second page. The recording may be out of date.

        `known` are the recordings from before the request waited for an equal request: later
        recordings answer.
        """
        key = found_key.key
        recordings = as_recordings(self._by_key.get(key), self._place_of)
        if recordings is None:
            return None
        if can_ask and asked is not None:
            if (recorded := self._of_same_call(recordings, key, take, asked)) is not None:
                return recorded
            if self._is_second_page(found_key, take, asked):
                return None
        variant = b"" if asked is None or found_key.own else asked.variant
        caller = asked.get_caller if can_ask and asked is not None else None
        headers = None if asked is None else asked.get_headers
        if (chosen := self._if_in_order(key, take, repeats, caller, headers)) is not None:
            _count(key, take, chosen, variant)
            return chosen
        allowed: Sequence[Interaction] = recordings.all
        if asked is not None and (recordings.has_conditions or can_ask):
            allowed = self._allowed(recordings, key, take, asked, can_ask=can_ask)
            if not allowed:
                return None
        chosen = self._choose(recordings, key, take, allowed, repeats or self.repeats, asked)
        if can_ask and chosen is not None and self.why_asked(chosen, take, known) is not None:
            # Under `first` and `cycle` this may be an old one of several recordings.
            chosen = self._choose(recordings, key, take, allowed, "last", asked)
            if chosen is not None and self.why_asked(chosen, take, known) is not None:
                return None
        if chosen is not None:
            _count(key, take, chosen, variant)
        return chosen

    def latest(self, key: bytes, take: Take, asked: ReceivedRequest) -> Interaction | None:
        """The last recorded answer of a key that a request may get, however old; not counted."""
        recordings = as_recordings(self._by_key.get(key), self._place_of)
        if recordings is None:
            return None
        allowed = self._allowed(recordings, key, take, asked, can_ask=True)
        return next((item for item in reversed(allowed) if item.failure is None), None)

    def recordings(self, key: bytes) -> Sequence[Interaction]:
        """The recordings with this match key, in the order of the cassette."""
        held = as_recordings(self._by_key.get(key), self._place_of)
        return () if held is None else held.all

    def all_are_for(self, key: bytes, headers: Headers) -> bool:
        """Whether all recordings of a key answer an equal request with these header fields."""
        held = self._by_key.get(key)
        if not isinstance(held, KeyedRecordings) or not held.has_conditions:
            return True
        ignored, is_of = self.rules.ignore_vary, self.digests.is_of
        return all(is_for(recording, headers, ignored, is_of) for recording in held.all)

    def next_in_order(
        self,
        key: bytes,
        take: Take,
        repeats: Repeats | None,
        caller: Callable[[], bytes] | None,
        headers: Callable[[], Headers] | None,
    ) -> Interaction | None:
        """The recording of an equal request that answers next, if the order alone decides.

        The request is not counted. None if `next` has to look at more, or if no recording is left.
        If the upstream can be called instead, `caller` names the caller: a recording of this take
        answers its caller alone, and one that is to be asked for again answers nobody. `headers` gives the fields
        of the request, which only recordings with conditions need.
        """
        try:
            chosen = self._if_in_order(key, take, repeats, caller, headers)
        except DocumentAway:
            return None
        # Only `next` counts how often an answer was given that the service gave several times.
        return None if chosen is None or (chosen.again and caller is not None) else chosen

    def _if_in_order(
        self,
        key: bytes,
        take: Take,
        repeats: Repeats | None,
        caller: Callable[[], bytes] | None,
        headers: Callable[[], Headers] | None,
    ) -> Interaction | None:
        recording = self._next_in_order(key, take, repeats or self.repeats, caller, headers)
        if recording is None or caller is None:
            return recording
        if recording.index not in take.touched and not take.writes:
            return recording
        try:
            if self.why_asked(recording, take) is not None:
                return None
        except StoreError:
            # The recording cannot be read in its file any more.
            return None
        self.repeats_first(recording, take)
        return recording

    def _next_in_order(
        self,
        key: bytes,
        take: Take,
        repeats: Repeats,
        caller: Callable[[], bytes] | None,
        headers: Callable[[], Headers] | None,
    ) -> Interaction | None:
        if (held := self._by_key.get(key)) is None:
            return None
        if not isinstance(held, Interaction) and held.has_conditions:
            if headers is None or len(held.all) > 1:
                return None
            ignored, is_of = self.rules.ignore_vary, self.digests.is_of
            if not is_for(held.all[0], headers(), ignored, is_of):
                return None
            held = held.all[0]
        if caller is not None and key in take.recorded_keys:
            first = held if isinstance(held, Interaction) else held.all[0]
            if distance.caller(first.request.credentials) != caller():
                return None
        if isinstance(held, Interaction):
            # The usual case. Unless a recording answers once, the cursor does not matter.
            if repeats != "miss":
                return held
            return held if take.cursors.get(key, 0) <= held.again else None
        if len(held.all) > 1 and (
            repeats == "first" or held.headers_differ or key in self._merged_keys
        ):
            return None
        return at_cursor(held.all, take.cursors.get(key, 0), repeats, held.ends)

    def repeats_first(self, interaction: Interaction, take: Take) -> bool:
        """Whether a recording is a model's answer of this take, and repeats for the first time."""
        index = interaction.index
        if index in take.repeated or self.take_of(index) != take.number or not interaction.metadata:
            return False
        take.repeated.add(index)
        self.repeated.add(index)
        return True

    def why_asked(
        self, interaction: Interaction, take: Take, known: Collection[int] | None = None
    ) -> str | None:
        """Why the service is asked although a recording could answer; None if the recording answers.

        Nobody can know whether an answer is still true, so within a take only the answers of models
        are given again. `known` as in `next`.
        """
        index = interaction.index
        is_awaited = known is not None and index not in known
        is_used_up = _is_used_up(interaction, take)
        if is_awaited or not (is_used_up or take.writes) or self.answers_again(interaction):
            return None
        if is_used_up:
            return f"#{index} may be out of date"
        if take.writes.get(write_key(interaction.request.route)):
            return f"#{index} is from before a write on its route"
        return None

    def why_asked_again(self, key: bytes, take: Take) -> str | None:
        """Why the recordings of a key may be out of date; None if they are not, or without any."""
        held = self._by_key.get(key)
        if held is None:
            return None
        return self.why_asked(held if isinstance(held, Interaction) else held.all[-1], take)

    def answers_again(self, interaction: Interaction) -> bool:
        """Whether the take that made or used a recording may be given its answer once more."""
        known = self._answers_again.get(interaction.index)
        # A recording can be edited under its index.
        if known is None or known[0] is not interaction:
            again = self.may_answer_again(interaction.request)
            known = self._answers_again[interaction.index] = interaction, again
        return known[1]

    def may_answer_again(self, request: Request) -> bool:
        """Whether a request calls a model, or is named by a rule `reuse`."""
        return self.calls_model(request) or is_reused(self.rules, request)

    def count_write(self, route: str, take: Take) -> None:
        """Count a write that was asked live: earlier takes no longer answer for its route."""
        self.take_now(take).writes[write_key(route)] += 1

    def use(self, index: int, take: Take) -> Interaction | None:
        """An HTTP recording, counted as the next of its key in a take."""
        exchange = exchange_of(self._interactions[index])
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
        held, ignored = self.recordings(key), self.rules.ignore_vary
        keyed = self._by_key.get(key)
        if not interaction.request.varied and not (
            isinstance(keyed, KeyedRecordings) and keyed.has_conditions
        ):
            return list(held)
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
        return self.take_of(index) < take.number and index not in take.kept

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
        self._answers_again.clear()
        self._build(self.stored())
        # Recordings of several old keys may share a new key: used ones need not come first.
        self._merged_keys = {key for key, held in self._by_key.items() if len(indexes_of(held)) > 1}
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
        self._merged_keys.clear()

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
        return sorted(set(self._key_of).difference(self.take.used if used is None else used))

    def unused_count(self, used: Collection[int] | None = None) -> int:
        """The number of unused recordings; for this take it costs the same however many there are."""
        if used is not None:
            return len(self._key_of.keys() - used)
        return len(self._key_of) - len(self.take.used)

    def duplicates(self) -> list[list[int]]:
        """The indexes of recordings that answer equal requests, by group."""
        # Recordings that answer in order share a key, but not a request. In a thread others are added.
        items, ignored = list(self._by_key.items()), self.rules.ignore_vary
        return [
            [interaction.index for interaction in group]
            for key, held in items
            if isinstance(held, KeyedRecordings) and ALIAS_PREFIX not in key
            for group in (of_one_request(held.all, ignored) if held.has_conditions else [held.all])
            if len(group) > 1
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

    def _credential_index(self) -> CredentialIndex:
        if self._credentials is None:
            exchanges = [exchange for exchange in map(exchange_of, self.snapshot()) if exchange]
            keyed = ((exchange, self._key_of[exchange.index]) for exchange in exchanges)
            self._credentials = CredentialIndex(keyed, self.rules, self.head.run_id)
        return self._credentials

    def _allowed(
        self,
        recordings: KeyedRecordings,
        key: bytes,
        take: Take,
        asked: ReceivedRequest,
        *,
        can_ask: bool,
    ) -> Sequence[Interaction]:
        """The recordings of a key that may answer the request in a take."""
        allowed: Sequence[Interaction] = recordings.all
        if recordings.has_conditions:
            allowed = [recording for recording in allowed if asked.is_meant_by(recording)]
        if can_ask and key in take.recorded_keys:
            first = allowed[0].request.credentials if allowed else ()
            now, caller, asks = take.number, distance.caller, asked.caller
            if not recordings.headers_differ and caller(first) == asks:
                return allowed
            allowed = [
                recording
                for recording in allowed
                if self.take_of(recording.index) != now
                or caller(recording.request.credentials) == asks
            ]
        return allowed

    def _choose(
        self,
        recordings: KeyedRecordings,
        key: bytes,
        take: Take,
        interactions: Sequence[Interaction],
        repeats: Repeats,
        asked: ReceivedRequest | None,
    ) -> Interaction | None:
        if repeats == "first":
            return first_recording(interactions, None if asked is None else asked.request)
        if asked is not None and len(recordings.all) > 1:
            differ = recordings.headers_differ or key in self._merged_keys
            if differ or len(interactions) < len(recordings.all):
                return _nearest_headers(interactions, take, asked.as_stored, repeats)
        return at_cursor(interactions, take.cursors.get(key, 0), repeats, recordings.ends)

    def _is_second_page(self, found_key: FoundKey, take: Take, asked: ReceivedRequest) -> bool:
        if found_key.own:
            return False
        return take.first_variant(found_key.key) not in (None, asked.variant)

    def _of_same_call(
        self, recordings: KeyedRecordings, key: bytes, take: Take, asked: ReceivedRequest
    ) -> Interaction | None:
        """The take's recording of the call that a client tries once more; None for another call.

        The recording is not counted again: its place in the order was used by the first try.
        """
        fields = asked.request.fields.first
        if key not in take.recorded_keys:
            return None
        mark, attempt = call_mark(fields), attempt_number(fields)
        if mark:
            index = take.marks.get(key, {}).get(mark)
            return next((item for item in recordings.all if item.index == index), None)
        if attempt is None or attempt == 1:
            return None
        own = [
            recording
            for recording in recordings.all
            if self.take_of(recording.index) == take.number
            and distance.caller(recording.request.credentials) == asked.caller
        ]
        return own[-1] if own else None

    def _rekeyed(self, before: Take) -> Take:
        """A take with cursors under the new keys, counted from the used recordings."""
        take = Take(
            before.number,
            touched=before.touched,
            kept=before.kept,
            repeated=before.repeated,
            writes=before.writes,
            used=before.used,
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

    def _renumber(self) -> None:
        positions = {index: at for at, index in enumerate(self._in_order())}
        self._place_of.clear()
        self._answers_again.clear()
        self.repeated = {positions[index] for index in self.repeated & positions.keys()}
        before, self._interactions = self._interactions, {}
        for index, at in positions.items():
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
        self._next_index = len(positions)

    def _in_order(self) -> list[int]:
        """The indexes in the order of the cassette."""
        return sorted(self._interactions, key=self._place)

    def _place(self, index: int) -> int:
        """The place of a recording: of the first replaced recording, or else of its index."""
        return self._place_of.get(index, index)

    def _put(self, interaction: Interaction, key: bytes) -> None:
        self.generation += 1
        self._interactions[interaction.index] = interaction
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
        self._answers_again.pop(index, None)
        self.repeated.discard(index)


def _route(key: bytes) -> bytes:
    return key[: key.index(b"\0")]


def _count(key: bytes, take: Take, chosen: Interaction, variant: bytes) -> None:
    # Read first: a recording that cannot be read does not count as used.
    _ = chosen.response
    index = chosen.index
    take.use(key, index, variant)
    if chosen.again:
        take.places[index] = take.places.get(index, 0) + 1


def _is_used_up(interaction: Interaction, take: Take) -> bool:
    """Whether the take has made a recording, or used it as often as the service gave the answer."""
    index = interaction.index
    if index not in take.touched:
        return False
    return not interaction.again or take.places.get(index, 0) > interaction.again


def _nearest_headers(
    interactions: Sequence[Interaction], take: Take, asked: Request, repeats: Repeats
) -> Interaction | None:
    """The next unused recording of the same caller, nearest headers first; then the repeat rule."""
    own = distance.of_same_caller(asked, interactions)
    unused = [interaction for interaction in own if not _is_used_up(interaction, take)]
    if unused:
        return distance.nearest_by_headers(asked, unused)[0]
    if repeats == "miss":
        return None
    nearest = {
        interaction.index: interaction for interaction in distance.nearest_by_headers(asked, own)
    }
    index = take.repeat([*nearest], repeats)
    return None if index is None else nearest[index]
