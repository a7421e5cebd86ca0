"""Chooses which recording of a request answers in a take, or says why none does.

The recordings of a request answer in their order. If they differ in headers, the unused recording with
the nearest headers comes first. After the last recording the cassette's repeat rule decides.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from tapeway.core.cassette.credential_index import FoundKey
from tapeway.core.cassette.cursors import Take, at_cursor, first_recording, write_key
from tapeway.core.cassette.keyed_recordings import HeldRecordings, KeyedRecordings, as_recordings
from tapeway.core.http.sdk_conventions import attempt_number, call_mark
from tapeway.core.matching.headers import distance
from tapeway.core.matching.headers.conditions import is_for
from tapeway.core.matching.placeholders import SecretDigests
from tapeway.core.matching.received_request import ReceivedRequest
from tapeway.core.matching.rules import Rules, is_reused
from tapeway.core.model.control import Repeats
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Headers, Request
from tapeway.errors import StoreError

CallsModel = Callable[[Request], bool]
"""Whether a request calls a model, and leaves nothing behind at the service."""


def calls_no_model(request: Request) -> bool:
    """For a cassette that only mode `replay` and tools look into."""
    return False


@dataclass(frozen=True, slots=True)
class Why:
    """Why none of the recordings of a request answers.

    `outdated` names the recording that would answer, if the service were not to be asked instead.
    """

    recordings: Sequence[Interaction] = ()
    outdated: str | None = None

    def used_up(self, asked: ReceivedRequest, take: Take) -> tuple[int, ...]:
        """The recordings that have answered in this take, and would answer otherwise."""
        return tuple(
            [
                recording.index
                for recording in self.recordings
                if recording.index in take.touched and asked.why_not(recording) is None
            ]
        )

    def told_apart(self, asked: ReceivedRequest) -> dict[int, str]:
        """By recording, the header that keeps the recording from answering."""
        why = [(recording.index, asked.why_not(recording)) for recording in self.recordings]
        return {index: reason for index, reason in why if reason is not None}


class Choice:
    """Decides between the recordings of a request in one cassette."""

    def __init__(
        self,
        rules: Rules,
        repeats: Repeats,
        digests: SecretDigests,
        take_of: Mapping[int, int],
        *,
        calls_model: CallsModel,
        merged: Collection[bytes] = (),
    ) -> None:
        """`take_of` are the takes that made recordings, by index.

        `merged` are keys under which recordings of several keys came together in a running take:
        their used recordings need not come first.
        """
        self.repeats = repeats
        self._rules = rules
        self._digests = digests
        self._take_of = take_of
        self._calls_model = calls_model
        self._merged = merged

    def choose(
        self,
        held: HeldRecordings,
        found_key: FoundKey,
        take: Take,
        repeats: Repeats | None,
        asked: ReceivedRequest | None = None,
        *,
        can_ask: bool = False,
        known: Collection[int] | None = None,
    ) -> Interaction | Why:
        """The recording that answers next in a take, counted as used; or why none does.

        `repeats` is the repeat rule, None for the cassette's. With `can_ask` the upstream can be
        called instead, so no recording answers in three further cases. Another caller made the
        recording in this take. A credential field has its second value in this take, perhaps the
        token of a second page. The recording may be out of date.

        `known` are the recordings from before the request waited for an equal request: later
        recordings answer.
        """
        key = found_key.key
        recordings = as_recordings(held, {})
        if recordings is None:
            return Why()
        if can_ask and asked is not None:
            if (recorded := self._of_same_call(recordings, key, take, asked)) is not None:
                return recorded
            if _is_second_page(found_key, take, asked):
                return Why(recordings.all)
        variant = b"" if asked is None or found_key.own else asked.variant
        caller = asked.get_caller if can_ask and asked is not None else None
        headers = None if asked is None else asked.get_headers
        if (chosen := self._if_in_order(held, key, take, repeats, caller, headers)) is not None:
            _count(key, take, chosen, variant)
            return chosen
        allowed: Sequence[Interaction] = recordings.all
        if asked is not None and (recordings.has_conditions or can_ask):
            allowed = self._allowed(recordings, key, take, asked, can_ask=can_ask)
            if not allowed:
                return Why(recordings.all)
        outdated = None
        # Under `first` and `cycle` this may be an old one of several recordings.
        for rule in (repeats or self.repeats, "last") if can_ask else (repeats or self.repeats,):
            chosen = self._by_rule(recordings, key, take, allowed, rule, asked)
            if chosen is None:
                break
            outdated = self.why_asked(chosen, take, known) if can_ask else None
            if outdated is None:
                _count(key, take, chosen, variant)
                return chosen
        return Why(recordings.all, outdated)

    def latest(
        self, held: HeldRecordings, key: bytes, take: Take, asked: ReceivedRequest
    ) -> Interaction | None:
        """The last recorded answer of a key that a request may get, however old; not counted."""
        recordings = as_recordings(held, {})
        if recordings is None:
            return None
        allowed = self._allowed(recordings, key, take, asked, can_ask=True)
        return next((item for item in reversed(allowed) if item.failure is None), None)

    def all_are_for(self, held: HeldRecordings, headers: Headers) -> bool:
        """Whether all recordings answer an equal request with these header fields."""
        if not isinstance(held, KeyedRecordings) or not held.has_conditions:
            return True
        ignored, is_of = self._rules.ignore_vary, self._digests.is_of
        return all(is_for(recording, headers, ignored, is_of) for recording in held.all)

    def in_order(
        self,
        held: HeldRecordings,
        key: bytes,
        take: Take,
        repeats: Repeats | None,
        caller: Callable[[], bytes] | None,
        headers: Callable[[], Headers] | None,
    ) -> Interaction | None:
        """The recording of an equal request that answers next, if the order alone decides.

        The request is not counted. None if `choose` has to look at more, or if no recording is left.
        If the upstream can be called instead, `caller` names the caller: a recording of this take
        answers its caller alone, and a recording out of date answers nobody. `headers` gives the fields
        of the request, which only recordings with conditions need.
        """
        try:
            chosen = self._if_in_order(held, key, take, repeats, caller, headers)
            if chosen is None or caller is None:
                return chosen
            # Only `choose` counts how often an answer was given that the service gave several times,
            # and only there an answer is noted as repeated.
            is_noted = chosen.again or self._repeats_for_the_first_time(chosen, take)
        except StoreError:
            # The document is away, or cannot be read any more.
            return None
        return None if is_noted else chosen

    def _if_in_order(
        self,
        held: HeldRecordings,
        key: bytes,
        take: Take,
        repeats: Repeats | None,
        caller: Callable[[], bytes] | None,
        headers: Callable[[], Headers] | None,
    ) -> Interaction | None:
        recording = self._next_in_order(held, key, take, repeats or self.repeats, caller, headers)
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
        return recording

    def _next_in_order(
        self,
        held: HeldRecordings,
        key: bytes,
        take: Take,
        repeats: Repeats,
        caller: Callable[[], bytes] | None,
        headers: Callable[[], Headers] | None,
    ) -> Interaction | None:
        if held is None:
            return None
        if not isinstance(held, Interaction) and held.has_conditions:
            if headers is None or len(held.all) > 1:
                return None
            ignored, is_of = self._rules.ignore_vary, self._digests.is_of
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
        if len(held.all) > 1 and (repeats == "first" or held.headers_differ or key in self._merged):
            return None
        return at_cursor(held.all, take.cursors.get(key, 0), repeats, held.ends)

    def repeats_first(self, interaction: Interaction, take: Take) -> bool:
        """Whether a recording is a model's answer of this take, and repeats for the first time."""
        if not self._repeats_for_the_first_time(interaction, take):
            return False
        take.repeated.add(interaction.index)
        return True

    def why_asked(
        self, interaction: Interaction, take: Take, known: Collection[int] | None = None
    ) -> str | None:
        """Why the service is asked although a recording could answer; None if the recording answers.

        Nobody can know whether an answer is still true, so within a take only the answers of models
        are given again. `known` as in `choose`.
        """
        index = interaction.index
        is_awaited = known is not None and index not in known
        is_used_up = _is_used_up(interaction, take)
        if is_awaited or not (is_used_up or take.writes) or self.answers_again(interaction.request):
            return None
        if is_used_up:
            return f"#{index} may be out of date"
        if take.writes.get(write_key(interaction.request.route)):
            return f"#{index} is from before a write on its route"
        return None

    def answers_again(self, request: Request) -> bool:
        """Whether a take may repeat an answer: a model's, or one by a rule `reuse`."""
        return self._calls_model(request) or is_reused(self._rules, request)

    def _repeats_for_the_first_time(self, interaction: Interaction, take: Take) -> bool:
        index = interaction.index
        is_own = self._take_of.get(index, 0) == take.number
        return is_own and index not in take.repeated and bool(interaction.metadata)

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
                if self._take_of.get(recording.index, 0) != now
                or caller(recording.request.credentials) == asks
            ]
        return allowed

    def _by_rule(
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
            differ = recordings.headers_differ or key in self._merged
            if differ or len(interactions) < len(recordings.all):
                return _nearest_headers(interactions, take, asked.as_stored, repeats)
        return at_cursor(interactions, take.cursors.get(key, 0), repeats, recordings.ends)

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
            if self._take_of.get(recording.index, 0) == take.number
            and distance.caller(recording.request.credentials) == asked.caller
        ]
        return own[-1] if own else None


def _is_second_page(found_key: FoundKey, take: Take, asked: ReceivedRequest) -> bool:
    if found_key.own:
        return False
    return take.first_variant(found_key.key) not in (None, asked.variant)


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
