"""Requests that repeat an answer of the cassette, as the history of a conversation.

A client sends each answer back. After an edit of an answer alone, the client's next request differs
from the recorded request.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tapeway.conversations.model import ASSISTANT, ConversationTurn, merge_assistant_turns, part_key
from tapeway.conversations.reader import UnreadableCall, parse_call
from tapeway.core.model.interaction import Interaction

_SHOWN = 60


@dataclass(frozen=True, slots=True)
class RepeatedDifferently:
    """A request that repeats the answer of interaction `of` with other words."""

    index: int
    of: int
    answered: str
    repeated: str

    def __str__(self) -> str:
        return (
            f"its request repeats the answer of #{self.of} as {_shown(self.repeated)}, and #{self.of} "
            f"answers {_shown(self.answered)}: a client that gets this answer sends another request; "
            "edit both"
        )


class RepeatedAnswers:
    """Finds such requests. The interactions of a cassette are added in order."""

    def __init__(self) -> None:
        self.differences: list[RepeatedDifferently] = []
        self._answers: defaultdict[bytes, list[tuple[int, str]]] = defaultdict(list)
        """The answers with their indexes, by a digest of all messages before."""

    def add(self, item: Interaction) -> None:
        """Compare its request with the answers before, and remember its answer."""
        if item.request.file is not None or item.response.file is not None:
            return
        try:
            call = parse_call(item)
        except UnreadableCall:
            return
        if call is None or not call.request.turns:
            return
        turns = merge_assistant_turns(call.request.turns)
        for turn, before in zip(turns, _digests(turns), strict=False):
            if turn.role == ASSISTANT and (text := _text(turn)):
                self._compare(item.index, text, self._answers.get(before, []))
        *_, whole = _digests(turns)
        if answered := _text(call.answer.turn):
            self._answers[whole].append((item.index, answered))

    def _compare(self, index: int, repeated: str, answers: list[tuple[int, str]]) -> None:
        if answers and all(answered != repeated for _, answered in answers):
            of, answered = answers[-1]
            self.differences.append(RepeatedDifferently(index, of, answered, repeated))


def _digests(turns: tuple[ConversationTurn, ...]) -> Iterator[bytes]:
    """Of the messages before each turn, and then of all."""
    known = hashlib.sha256()
    for turn in turns:
        yield known.digest()
        for part in turn.parts:
            known.update(part_key(turn.role, part) + b"\0")
    yield known.digest()


def _text(turn: ConversationTurn) -> str:
    return "".join([part.text for part in turn.parts if part.kind == "text"]).strip()


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")
