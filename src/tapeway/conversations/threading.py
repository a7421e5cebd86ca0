"""Which call goes on from which: by the history it sends along."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher

from tapeway.conversations.model import (
    ASSISTANT,
    ConversationMessage,
    ConversationTurn,
    Piece,
    key,
    merged,
)
from tapeway.conversations.reader import Spoken

_FEWEST_SHARED = 2
"""Pieces of a history that tell it from another: one alone may be said by chance."""

Keys = list[bytes]


@dataclass(slots=True)
class _Thread:
    """A conversation: all that was said, and the history that its last call left behind."""

    number: int
    system: Keys = field(default_factory=list)
    history: Keys = field(default_factory=list)
    answers: bool = False
    messages: list[ConversationMessage] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _ThreadPlace:
    """Where a call belongs: its thread, what of its pieces stands there already, what to say of it.

    `before` is the part of a history that the service kept, and that the call does not repeat.
    """

    thread: _Thread
    known: frozenset[int] = frozenset()
    before: Sequence[bytes] = ()
    notes: tuple[str, ...] = ()


class Threads:
    """The conversations of a cassette in the making."""

    def __init__(self) -> None:
        self._threads: list[_Thread] = []
        # By the digest of a whole history: the threads that stand there.
        self._standing: dict[bytes, list[_Thread]] = defaultdict(list)
        self._begun: dict[bytes, _Thread] = {}
        self._answers: dict[bytes, _Thread] = {}
        self._names: dict[str, tuple[_Thread, int, int]] = {}

    def messages(self) -> Iterator[ConversationMessage]:
        """All of them, one conversation after the other."""
        for thread in self._threads:
            yield from thread.messages

    def add(self, call: Spoken) -> None:
        """Put what a call says that is new where it belongs."""
        keys = _keys(call.asked.turns)
        system = _keys(call.asked.system)
        place = self._place(call, keys, system)
        thread, notes = place.thread, list(place.notes)
        self._leave(thread)
        notes += _of_system(thread, call, system)
        _say(thread, call, call.asked.turns, place.known, notes)
        answer = merged([call.answered.turn])
        _say(thread, call, answer, frozenset(), call.notes, answered=True)
        if call.error or (call.notes and not answer):
            _note(thread, call, [call.error] if call.error else call.notes)
        said = [] if call.error and not answer else list(answer)
        thread.history = [*place.before, *_keys(merged([*call.asked.turns, *said]))]
        self._stand(thread, call, _keys(said))

    def _place(self, call: Spoken, keys: Keys, system: Keys) -> _ThreadPlace:
        if call.asked.previous:
            return self._named(call)
        return self._continued(keys, system) or self._changed(call, keys) or self._new(call, keys)

    def _named(self, call: Spoken) -> _ThreadPlace:
        previous = call.asked.previous
        if previous not in self._names:
            thread = self._open()
            return _ThreadPlace(
                thread, notes=(f"what {previous} had said before is not in the cassette",)
            )
        thread, length, index = self._names[previous]
        notes: tuple[str, ...] = ()
        if length < len(thread.history):
            notes = (f"interaction {call.index} goes back to the answer of interaction {index}",)
        return _ThreadPlace(thread, before=thread.history[:length], notes=notes)

    def _continued(self, keys: Keys, system: Keys) -> _ThreadPlace | None:
        """The thread whose whole history the call begins with, the longest one."""
        for length, digest in reversed(list(enumerate(_digests(keys), 1))):
            for thread in reversed(self._standing.get(digest, [])):
                # Where nothing was answered yet, two may begin alike.
                if thread.answers or thread.system == system:
                    return _ThreadPlace(thread, frozenset(range(length)))
        return None

    def _changed(self, call: Spoken, keys: Keys) -> _ThreadPlace | None:
        """The thread most of whose answers the call repeats, in a history that is not the same."""
        votes = Counter(self._answers[each].number for each in keys if each in self._answers)
        if not votes:
            return None
        most = max(votes.values())
        thread = self._threads[max(number for number in votes if votes[number] == most)]
        blocks = SequenceMatcher(None, thread.history, keys, autojunk=False).get_matching_blocks()
        known = {each.b + at for each in blocks for at in range(each.size)}
        if len(known) < _FEWEST_SHARED:
            return None
        gone = len(thread.history) - len(known)
        added = max(known) + 1 - len(known)
        told = [f"leaves out {gone}"] if gone else []
        told += [f"puts {added} in between"] if added else []
        note = f"interaction {call.index} edits the history: it {' and '.join(told)}"
        return _ThreadPlace(thread, frozenset(known), notes=(note,) if told else ())

    def _new(self, call: Spoken, keys: Keys) -> _ThreadPlace:
        start = _digest(keys)
        before = self._begun.get(start) if keys else None
        thread = self._open()
        self._begun.setdefault(start, thread)
        if before is None:
            return _ThreadPlace(thread)
        return _ThreadPlace(thread, notes=(f"it begins like conversation {before.number}",))

    def _open(self) -> _Thread:
        thread = _Thread(len(self._threads))
        self._threads.append(thread)
        return thread

    def _leave(self, thread: _Thread) -> None:
        if thread.history:
            standing = self._standing[_digest(thread.history)]
            standing[:] = [each for each in standing if each is not thread]

    def _stand(self, thread: _Thread, call: Spoken, answer: Keys) -> None:
        if thread.history:
            self._standing[_digest(thread.history)].append(thread)
        thread.answers = thread.answers or bool(answer)
        for each in answer:
            self._answers[each] = thread
        for name in call.answered.names:
            self._names[name] = (thread, len(thread.history), call.index)


def _of_system(thread: _Thread, call: Spoken, system: Keys) -> list[str]:
    """Say the instructions where they are new; what is to be said of them besides."""
    # Who goes on by a name repeats nothing, and need not say that there are no instructions.
    if system == thread.system or (call.asked.previous and not system):
        return []
    first = not thread.messages
    thread.system = system
    if not system:
        return [] if first else ["no instructions from here on"]
    notes = [] if first else ["other instructions from here on"]
    _say(thread, call, call.asked.system, frozenset(), notes)
    return []


def _say(
    thread: _Thread,
    call: Spoken,
    turns: Sequence[ConversationTurn],
    known: frozenset[int],
    notes: Sequence[str],
    *,
    answered: bool = False,
) -> None:
    """Add what of these turns is not known; the notes go to the first message of them."""
    at = 0
    waiting = list(notes)
    for turn in turns:
        fresh: list[Piece] = []
        for piece in turn.pieces:
            if piece.kind == "thinking":
                # Told with what it led to.
                fresh.append(piece)
                continue
            if at not in known:
                fresh.append(piece)
            at += 1
        thinks_alone = all(piece.kind == "thinking" for piece in fresh)
        if not fresh or (thinks_alone and not answered):
            continue
        model = call.model if answered else None
        thread.messages.append(
            ConversationMessage(
                thread.number, call.index, turn.role, tuple(fresh), call.at, model, tuple(waiting)
            )
        )
        waiting = []
    if waiting and not answered:
        _note(thread, call, waiting)


def _note(thread: _Thread, call: Spoken, notes: Sequence[str]) -> None:
    """Say it of the last message, there being no other."""
    if not thread.messages:
        empty = ConversationMessage(
            thread.number, call.index, ASSISTANT, (), call.at, call.model, tuple(notes)
        )
        thread.messages.append(empty)
        return
    last = thread.messages[-1]
    told = [
        each if each.startswith("interaction") else f"interaction {call.index}: {each}"
        for each in notes
    ]
    thread.messages[-1] = replace(last, notes=(*last.notes, *told))


def _keys(turns: Sequence[ConversationTurn]) -> Keys:
    return [
        key(turn.role, piece) for turn in turns for piece in turn.pieces if piece.kind != "thinking"
    ]


def _digests(keys: Keys) -> Iterator[bytes]:
    """The digest of each beginning of a history."""
    running = hashlib.sha256()
    for each in keys:
        running.update(each)
        yield running.digest()


def _digest(keys: Sequence[bytes]) -> bytes:
    return hashlib.sha256(b"".join(keys)).digest()
