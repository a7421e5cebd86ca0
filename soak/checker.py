"""What a history must not show: a pure function from a history to its violations.

Rules, each with what the documentation excepts (docs/scaling.md, "What is lost in a failure"; docs/stores.md):

lost            An answer that a client got as recorded or replayed is there at the end, unless it was
                edited, or recorded anew in mode `record` in a later take.
asked twice     Nothing is asked for again that somebody got as recorded or replayed. Before, an equal
                miss is asked for once more only where the process that asked was killed, stopped, cut
                off or starved beyond its lease, the database crashed, or the call's client was told
                that it cannot be recorded, or left while the disk was full.
two answers     An equal request has one answer, also where it was asked for twice.
out of turn     In a take of mode `replay` the k-th equal request gets the k-th recording: one that
                began after another had ended gets a later one, none is given out twice but the last,
                and none is skipped that no broken or failed request can have used. A crash of the
                database may take turns back, and each process over a full disk with SQLite has turns
                of its own. A recording of an earlier request that is stored during the take stands
                before later ones, and moves their turns on.
wrong mode      The outcome is one of a mode that can have been in force when the request arrived, and
                the cassette one that can have been the active one. A recorded answer is never a miss.
edit            Of edits of one version one succeeds; a version that was replaced when a request began
                is not replayed; what is there at the end is an edit that nobody replaced.
secret          No credential of a request stands in the store, in its files, in a log, or in an answer
                that was replayed.
trouble         Without a fault every request and every call of the admin API goes well.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf

from soak import takes
from soak.history import Asked, Called, Edited, Fault, FaultKind, History
from soak.takes import Span
from tests.support.canary import sightings

OUTCOMES = {
    "replay": frozenset({"replayed", "miss"}),
    "record": frozenset({"recorded"}),
    "auto": frozenset({"recorded", "replayed"}),
    "passthrough": frozenset({"live"}),
}
_KEPT = frozenset({"recorded", "replayed"})
_NOT_SERVED = frozenset({"error", "none", "left"})
_TAKES_A_LEASE: frozenset[FaultKind] = frozenset({"kill", "stop", "drop", "crash", "starved"})
_STARVES_S = 45.0
"""No fault lasts half as long, so whoever waits longer is forgotten."""
_SEARCHED, _LONGEST_SECRET = 2**20, 2**10
"""Large places are searched in parts that overlap."""

Question = tuple[str, str]


def violations(history: History) -> list[str]:
    """A line for each breach, with the requests that show it."""
    return list(_Checked(history).violations())


def secrets_seen(secrets: Mapping[str, str], places: Mapping[str, bytes]) -> list[str]:
    """A line for each secret that stands in a place, however it is encoded."""
    return [
        f"secret: {sighting}"
        for place, content in places.items()
        for start in range(0, len(content), _SEARCHED - _LONGEST_SECRET)
        for sighting in sightings(secrets, {place: content[start : start + _SEARCHED]})
    ]


class _Checked:
    """A history, sorted for the rules."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._lives: dict[str, Sequence[Span]] = {}
        self._asked: dict[Question, list[Asked]] = defaultdict(list)
        for asked in sorted(history.asked, key=lambda request: request.began):
            self._asked[asked.served_from or asked.cassette, asked.question].append(asked)
        self._by_id = {request.id: request for request in history.asked}
        self._recovered: dict[Question, list[str]] = defaultdict(list)
        for found in history.recovered:
            self._recovered[found.cassette, found.question].append(found.answer)
        self._replaced = {
            (edit.cassette, edit.expected): edit for edit in history.edited if edit.status == 200
        }
        # One that was not refused may have come to pass.
        self._edited_away = {
            (edit.cassette, edit.expected) for edit in history.edited if edit.status != 412
        }
        self._called: dict[str, list[Called]] = defaultdict(list)
        for call in sorted(history.called, key=lambda called: called.began):
            self._called[call.question].append(call)

    def violations(self) -> Iterator[str]:
        yield from self._history.complaints
        for rule in (
            *(self._lost, self._asked_twice, self._two_answers, self._out_of_turn),
            *(self._wrong_mode, self._missed, self._edits, self._trouble),
        ):
            yield from rule()

    def _life(self, cassette: str) -> Sequence[Span]:
        if cassette not in self._lives:
            self._lives[cassette] = takes.spans(self._history.steered, cassette)
        return self._lives[cassette]

    def _records_anew(self, cassette: str) -> bool:
        return any("record" in span.modes for span in self._life(cassette))

    # Recordings.

    def _lost(self) -> Iterator[str]:
        for question, asked in self._asked.items():
            there = set(self._recovered[question])
            for request in asked:
                if request.outcome not in _KEPT or request.answer in there:
                    continue
                if (question[0], request.answer) in self._edited_away:
                    continue
                if not self._recorded_anew_after(question, request):
                    yield f"lost: {_told(request)} is not there at the end"

    def _recorded_anew_after(self, question: Question, kept: Asked) -> bool:
        """Whether a request of a later take may have put another recording in the place of this."""
        # A straggler of mode `record` may replace what others have replayed since.
        recorded = min(
            request.began for request in self._asked[question] if request.answer == kept.answer
        )
        began = [
            span.changing
            for span in self._life(question[0])
            if "record" in span.modes and span.since > recorded
        ]
        return bool(began) and any(
            request.ended >= min(began) and request.outcome != "replayed"
            for request in self._asked[question]
        )

    def _asked_twice(self) -> Iterator[str]:
        for question, asked in self._asked.items():
            if self._records_anew(question[0]):
                continue
            acknowledged = min(
                (request.ended for request in asked if request.outcome in _KEPT), default=inf
            )
            calls = [call for call in self._called[question[1]] if self._was_a_miss(call)]
            for call in calls:
                if call.began > acknowledged:
                    yield (
                        f"asked twice: {call.question} at {call.began:.3f} for {call.asked}, "
                        f"which was acknowledged at {acknowledged:.3f}"
                    )
            for first, second in pairwise(calls):
                if second.began <= acknowledged and not self._excused(first, second):
                    yield (
                        f"asked twice: {second.question} at {first.began:.3f} for {first.asked} and "
                        f"at {second.began:.3f} for {second.asked}, and nothing had failed"
                    )

    def _was_a_miss(self, call: Called) -> bool:
        """Whether a call is certainly not one of mode `passthrough`."""
        asked = self._by_id[call.asked]
        return asked.outcome != "live" and "passthrough" not in takes.possible_modes(
            self._life(asked.cassette), asked
        )

    def _excused(self, first: Called, second: Called) -> bool:
        asked = self._by_id[first.asked]
        if asked.outcome in ("error", "none") and asked.ended <= second.began:
            return True
        if asked.outcome == "left" and "full" in {
            fault.kind for fault in self._faults(first.began, second.began)
        }:
            # The client left before anybody could tell it that there was no room.
            return True
        return any(
            fault.kind in _TAKES_A_LEASE and fault.instance in (None, asked.instance)
            for fault in self._faults(first.began, second.began)
        )

    def _two_answers(self) -> Iterator[str]:
        for (cassette, question), asked in self._asked.items():
            if self._records_anew(cassette):
                continue
            # Edits have a rule of their own.
            kept = [
                request
                for request in asked
                if request.outcome in _KEPT and "edit" not in request.answer
            ]
            for one, other in pairwise(kept):
                if one.answer != other.answer:
                    yield f"two answers: {question}: {_told(one)}, {_told(other)}"
        for (cassette, question), answers in self._recovered.items():
            if len(answers) > 1 and not self._records_anew(cassette):
                yield f"two answers: {question} in {cassette} has {', '.join(answers)} at the end"

    # Turns.

    def _out_of_turn(self) -> Iterator[str]:
        for question, asked in self._asked.items():
            life = self._life(question[0])
            found: dict[Span, list[Asked]] = defaultdict(list)
            for request in asked:
                span = takes.only_span(life, request)
                if span is not None and span.modes == {"replay"} and request.outcome == "replayed":
                    found[span].append(request)
            for span, served in found.items():
                yield from self._turns(question, span, served)

    def _turns(self, question: Question, span: Span, served: list[Asked]) -> Iterator[str]:
        turns = {answer: at for at, answer in enumerate(self._recovered[question])}
        # What is not there at the end breaks another rule.
        served = [request for request in served if request.answer in turns]
        if not served:
            return
        last = max(turns[request.answer] for request in served)
        users = [
            request
            for request in self._asked[question]
            if request.ended >= span.take_from and request.began <= span.until
        ]
        if last >= len(users):
            yield f"out of turn: {question[1]}: number {last + 1} for {len(users)} requests of a take"
        for part in self._between_crashes(served):
            yield from self._order(question, turns, part)

    def _order(
        self, question: Question, turns: dict[str, int], served: Sequence[Asked]
    ) -> Iterator[str]:
        ends = sorted(served, key=lambda request: request.ended)
        at, latest = 0, None
        for request in served:
            while at < len(ends) and ends[at].ended < request.began:
                if latest is None or turns[ends[at].answer] > turns[latest.answer]:
                    latest = ends[at]
                at += 1
            if (
                latest is not None
                and turns[request.answer] < turns[latest.answer]
                and not self._stored_before(question, turns, request, latest)
            ):
                yield f"out of turn: {_told(request)} comes before {_told(latest)}"
        by_answer: dict[str, list[Asked]] = defaultdict(list)
        for request in served:
            by_answer[request.answer].append(request)
        for answer, users in by_answer.items():
            if len(users) < 2 or self._was_last(question, turns[answer], users[-1]):
                continue
            if not self._stored_before(question, turns, users[-1], users[0]):
                yield f"out of turn: {_told(users[0])}, and again {_told(users[-1])}"

    def _stored_before(
        self, question: Question, turns: Mapping[str, int], served: Asked, earlier: Asked
    ) -> bool:
        """Whether a recording before this one can have been stored since an earlier replay began."""
        return any(
            request.outcome == "recorded"
            and request.began < earlier.began
            and earlier.began < request.ended
            and turns.get(request.answer, inf) < turns[served.answer]
            for request in self._asked[question]
        )

    def _was_last(self, question: Question, turn: int, asked: Asked) -> bool:
        """Whether a recording can have been the last one when a request was served."""
        later = self._recovered[question][turn + 1 :]
        if not later:
            return True
        recorded = [
            request.ended
            for request in self._asked[question]
            if request.answer == later[0] and request.outcome in ("recorded", "replayed")
        ]
        return not recorded or min(recorded) > asked.began

    def _between_crashes(self, served: list[Asked]) -> Iterable[list[Asked]]:
        parts: dict[int, list[Asked]] = defaultdict(list)
        # Without room for its log, the database crashes too.
        crashes = [fault for fault in self._history.faults if fault.kind in ("crash", "full")]
        for request in served:
            if not any(
                fault.began < request.ended and request.began < fault.ended for fault in crashes
            ):
                parts[sum(fault.began < request.began for fault in crashes)].append(request)
        return parts.values()

    # Modes.

    def _wrong_mode(self) -> Iterator[str]:
        for request in self._history.asked:
            if request.outcome in _NOT_SERVED:
                continue
            cassette = request.cassette or request.served_from
            modes = takes.possible_modes(self._life(cassette), request)
            if not any(request.outcome in OUTCOMES[mode] for mode in modes):
                yield f"wrong mode: {_told(request)} in mode {' or '.join(sorted(modes))}"
            if request.cassette:
                if request.served_from != request.cassette:
                    yield f"wrong mode: {_told(request)} is from cassette {request.served_from}"
            else:
                active = takes.possible_cassettes(self._history.steered, request)
                if request.served_from not in active:
                    yield f"wrong mode: {_told(request)}: active is {' or '.join(sorted(active))}"

    def _missed(self) -> Iterator[str]:
        for asked in self._asked.values():
            acknowledged = min(
                (request.ended for request in asked if request.outcome in _KEPT), default=inf
            )
            for request in asked:
                if request.outcome == "miss" and request.began > acknowledged:
                    yield f"lost: {_told(request)} is a miss, acknowledged at {acknowledged:.3f}"

    # Edits.

    def _edits(self) -> Iterator[str]:
        counts = Counter(
            (answer.cassette, answer.expected)
            for answer in self._history.edited
            if answer.status == 200
        )
        for (cassette, expected), count in counts.items():
            if count > 1:
                yield f"edit: {count} edits of {expected} in {cassette} had success"
        for (cassette, question), asked in self._asked.items():
            for request in asked:
                edit = self._replaced.get((cassette, request.answer))
                if (
                    request.outcome == "replayed"
                    and edit is not None
                    and edit.ended < request.began
                ):
                    yield f"edit: {_told(request)}, replaced by {edit.answer} at {edit.ended:.3f}"
            for answer in self._recovered[cassette, question]:
                if (cassette, answer) in self._replaced:
                    by = self._replaced[cassette, answer].answer
                    yield f"edit: {answer} is there at the end, replaced by {by}"
        yield from self._lost_edits()

    def _lost_edits(self) -> Iterator[str]:
        there = {(recovered.cassette, recovered.answer) for recovered in self._history.recovered}
        for edit in self._history.edited:
            if edit.status == 200 and not self._leads_to(edit, there):
                yield f"lost: the edit {edit.answer} of {edit.expected} in {edit.cassette}"

    def _leads_to(self, edit: Edited, there: set[Question]) -> bool:
        """Whether an edit is there at the end, or one that may have replaced it."""
        place = (edit.cassette, edit.answer)
        return place in there or place in self._edited_away

    # Failures.

    def _trouble(self) -> Iterator[str]:
        for request in self._history.asked:
            failed = request.outcome in ("error", "none")
            if request.code == "internal":
                yield f"trouble: {_told(request)} is a defect"
            elif request.outcome != "left" and request.ended - request.began > _STARVES_S:
                yield f"trouble: {_told(request)} took {request.ended - request.began:.0f} s"
            elif failed and not self._in_trouble(request.began, request.ended):
                yield f"trouble: {_told(request)}, and nothing had failed"
        for steering in self._history.steered:
            good = (200, 409) if steering.what == "eject" else (200,)
            if steering.status not in good and not self._in_trouble(steering.began, steering.ended):
                yield f"trouble: {steering}, and nothing had failed"
        for edit in self._history.edited:
            if edit.status not in (200, 412) and not self._in_trouble(edit.began, edit.ended):
                yield f"trouble: {edit}, and nothing had failed"

    def _in_trouble(self, began: float, ended: float) -> bool:
        return any(fault.kind != "clock" for fault in self._faults(began, ended))

    def _faults(self, began: float, ended: float) -> Iterator[Fault]:
        for fault in self._history.faults:
            if fault.began <= ended and began <= fault.ended:
                yield fault


def _told(asked: Asked) -> str:
    answered = f"{asked.outcome} {asked.answer or asked.code or asked.status or ''}".strip()
    return (
        f"{asked.id} for {asked.question} at {asked.began:.3f} to {asked.ended:.3f} "
        f"of instance {asked.instance}: {answered}"
    )
