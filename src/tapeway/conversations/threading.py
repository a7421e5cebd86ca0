"""Joins calls to conversations: by the history that each call sends along.

A call continues a conversation if its history begins with all of its messages, or repeats most
of the answers given there. Each message is then listed once, where it was first seen.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher

from tapeway.conversations.model import (
    ASSISTANT,
    ContentPart,
    ConversationMessage,
    ConversationTurn,
    merge_assistant_turns,
    part_key,
)
from tapeway.conversations.reader import ParsedCall
from tapeway.core.digests import sha256

_FEWEST_SHARED = 2
"""Two histories are equal if they share this many parts: a single part may agree by chance."""

Keys = list[bytes]


@dataclass(slots=True)
class _Thread:
    """A conversation: the messages, and the history as of the last call."""

    number: int
    system: Keys = field(default_factory=list)
    history: Keys = field(default_factory=list)
    answers: bool = False
    tools: dict[str, str] = field(default_factory=dict)
    """The names of the tools that were called, by the identifiers of the calls."""
    messages: list[ConversationMessage] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _ThreadPlace:
    """The place of a call: thread, positions of parts known there, and notes.

    `before` is the part of the history stored by the service, which the call does not repeat.
    """

    thread: _Thread
    known: frozenset[int] = frozenset()
    before: Sequence[bytes] = ()
    notes: tuple[str, ...] = ()


class Threads:
    """The conversations of a cassette, built call by call."""

    def __init__(self) -> None:
        self._threads: list[_Thread] = []
        # The threads by the digest of their whole history.
        self._by_history: dict[bytes, list[_Thread]] = defaultdict(list)
        self._by_start: dict[bytes, _Thread] = {}
        self._by_answer: dict[bytes, _Thread] = {}
        self._identifiers: dict[str, tuple[_Thread, int, int]] = {}

    def messages(self) -> Iterator[ConversationMessage]:
        """All messages, conversation by conversation."""
        for thread in self._threads:
            yield from thread.messages

    def add(self, call: ParsedCall) -> int:
        """Append what is new in a call to the conversation it belongs to; returns its number."""
        keys = _keys(call.request.turns)
        system = _keys(call.request.system)
        thread_place = self._place(call, keys, system)
        thread, notes = thread_place.thread, list(thread_place.notes)
        self._forget_history(thread)
        notes += _append_instructions(thread, call, system)
        _append(thread, call, call.request.turns, thread_place.known, notes)
        answer = merge_assistant_turns([call.answer.turn])
        _append(thread, call, answer, frozenset(), call.notes, answered=True)
        if call.error or (call.notes and not answer):
            _annotate(thread, call, [call.error] if call.error else call.notes)
        answered = [] if call.error and not answer else list(answer)
        thread.history = [
            *thread_place.before,
            *_keys(merge_assistant_turns([*call.request.turns, *answered])),
        ]
        self._remember_history(thread, call, _keys(answered))
        return thread.number

    def _place(self, call: ParsedCall, keys: Keys, system: Keys) -> _ThreadPlace:
        if call.request.previous:
            return self._by_identifier(call)
        return (
            self._longest_continued(keys, system)
            or self._edited(call, keys)
            or self._new_thread(call, keys)
        )

    def _by_identifier(self, call: ParsedCall) -> _ThreadPlace:
        previous = call.request.previous
        if previous not in self._identifiers:
            thread = self._open()
            return _ThreadPlace(
                thread, notes=(f"the history up to {previous} is not in the cassette",)
            )
        thread, length, index = self._identifiers[previous]
        notes: tuple[str, ...] = ()
        if length < len(thread.history):
            notes = (f"interaction {call.index} goes back to the answer of interaction {index}",)
        return _ThreadPlace(thread, before=thread.history[:length], notes=notes)

    def _longest_continued(self, keys: Keys, system: Keys) -> _ThreadPlace | None:
        """The thread with the longest history that the call's own history begins with."""
        for length, digest in reversed(list(enumerate(_digests(keys), 1))):
            for thread in reversed(self._by_history.get(digest, [])):
                # Before the first answer two conversations may begin with the same messages.
                if thread.answers or thread.system == system:
                    return _ThreadPlace(thread, frozenset(range(length)))
        return None

    def _edited(self, call: ParsedCall, keys: Keys) -> _ThreadPlace | None:
        """The thread most of whose answers the call repeats, although its history was edited."""
        votes = Counter(self._by_answer[key].number for key in keys if key in self._by_answer)
        if not votes:
            return None
        most = max(votes.values())
        thread = self._threads[max(number for number in votes if votes[number] == most)]
        blocks = SequenceMatcher(None, thread.history, keys, autojunk=False).get_matching_blocks()
        known = {block.b + at for block in blocks for at in range(block.size)}
        if len(known) < _FEWEST_SHARED:
            return None
        left_out = len(thread.history) - len(known)
        added = max(known) + 1 - len(known)
        changes = [f"leaves out {left_out}"] if left_out else []
        changes += [f"puts {added} in between"] if added else []
        note = f"interaction {call.index} edits the history: it {' and '.join(changes)}"
        return _ThreadPlace(thread, frozenset(known), notes=(note,) if changes else ())

    def _new_thread(self, call: ParsedCall, keys: Keys) -> _ThreadPlace:
        start = _digest(keys)
        before = self._by_start.get(start) if keys else None
        thread = self._open()
        self._by_start.setdefault(start, thread)
        if before is None:
            return _ThreadPlace(thread)
        return _ThreadPlace(thread, notes=(f"it begins like conversation {before.number}",))

    def _open(self) -> _Thread:
        thread = _Thread(len(self._threads))
        self._threads.append(thread)
        return thread

    def _forget_history(self, thread: _Thread) -> None:
        if thread.history:
            same = self._by_history[_digest(thread.history)]
            same[:] = [other for other in same if other is not thread]

    def _remember_history(self, thread: _Thread, call: ParsedCall, answer: Keys) -> None:
        if thread.history:
            self._by_history[_digest(thread.history)].append(thread)
        thread.answers = thread.answers or bool(answer)
        for digest in answer:
            self._by_answer[digest] = thread
        for name in call.answer.names:
            self._identifiers[name] = (thread, len(thread.history), call.index)


def _append_instructions(thread: _Thread, call: ParsedCall, system: Keys) -> list[str]:
    """Append instructions that changed; returns the notes for the message after them."""
    # A call that continues by identifier repeats nothing: no instructions are no change.
    if system == thread.system or (call.request.previous and not system):
        return []
    first = not thread.messages
    thread.system = system
    if not system:
        return [] if first else ["no instructions from here on"]
    notes = [] if first else ["other instructions from here on"]
    _append(thread, call, call.request.system, frozenset(), notes)
    return []


def _append(
    thread: _Thread,
    call: ParsedCall,
    turns: Sequence[ConversationTurn],
    known: frozenset[int],
    notes: Sequence[str],
    *,
    answered: bool = False,
) -> None:
    """Append the unknown parts of these turns; the first message gets the notes."""
    at = 0
    pending = list(notes)
    for turn in turns:
        new: list[ContentPart] = []
        for part in turn.parts:
            if part.kind == "thinking":
                # Shown with the text or call to which the reasoning led.
                new.append(part)
                continue
            if part.kind == "call" and part.id:
                thread.tools[part.id] = part.name
            if at not in known:
                # A call that continues by identifier does not repeat the tool's call.
                new.append(replace(part, name=part.name or thread.tools.get(part.id, "")))
            at += 1
        only_thinking = all(part.kind == "thinking" for part in new)
        if not new or (only_thinking and not answered):
            continue
        model = call.model if answered else None
        thread.messages.append(
            ConversationMessage(
                thread.number, call.index, turn.role, tuple(new), call.at, model, tuple(pending)
            )
        )
        pending = []
    if pending and not answered:
        _annotate(thread, call, pending)


def _annotate(thread: _Thread, call: ParsedCall, notes: Sequence[str]) -> None:
    """Add the notes to the last message, as no separate message carries them."""
    if not thread.messages:
        empty = ConversationMessage(
            thread.number, call.index, ASSISTANT, (), call.at, call.model, tuple(notes)
        )
        thread.messages.append(empty)
        return
    last = thread.messages[-1]
    added = [
        note if note.startswith("interaction") else f"interaction {call.index}: {note}"
        for note in notes
    ]
    thread.messages[-1] = replace(last, notes=(*last.notes, *added))


def _keys(turns: Sequence[ConversationTurn]) -> Keys:
    return [
        part_key(turn.role, part)
        for turn in turns
        for part in turn.parts
        if part.kind != "thinking"
    ]


def _digests(keys: Keys) -> Iterator[bytes]:
    """The digest of each beginning of a history."""
    running = hashlib.sha256()
    for key in keys:
        running.update(key)
        yield running.digest()


def _digest(keys: Sequence[bytes]) -> bytes:
    return sha256(b"".join(keys)).digest()
