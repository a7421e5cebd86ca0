"""The tool calls of a conversation's turns, each with its result, and what the result cost.

A turn calls tools; the results come with the request of a later turn. What they add to its prompt is
the tokens of the prompt beyond those of the turn before and its answer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from tapeway.conversations.gist import call_words
from tapeway.conversations.model import ASSISTANT, ContentPart, ConversationMessage
from tapeway.core.text import readable_json

_HEAD = 160
_SECOND_MS = 1000.0


@dataclass(slots=True)
class ToolStep:
    """A tool call and its result, each in a few words.

    `tokens` and `usd` are about what the result added to the next prompt, `ms` about how long the
    tool took: recordings hold the time of an answer to the second. None where that is not known.
    `result` is None where no recorded turn brings it; `answered_in` is the interaction that does.
    """

    name: str
    call: str
    id: str = field(repr=False)
    result: str | None = None
    characters: int = 0
    failed: bool = False
    answered_in: int | None = None
    tokens: int | None = None
    usd: float | None = None
    ms: float | None = None


@dataclass(frozen=True, slots=True)
class TurnFigures:
    """What the steps of a conversation need to know of a turn."""

    interaction: int
    prompt_tokens: int
    completion_tokens: int
    latency_ms: float
    at: str | None
    prompt_usd: float | None
    continues: bool
    """Whether its prompt begins with all of the turn before."""


class ToolSteps:
    """The tool calls of one conversation, turn by turn."""

    def __init__(self) -> None:
        self._waiting: list[ToolStep] = []
        self._before: TurnFigures | None = None

    def of_turn(
        self, turn: TurnFigures, new: Sequence[ConversationMessage]
    ) -> tuple[ToolStep, ...]:
        """The calls of a turn's answer; the results that the turn brings go to the calls before."""
        answered = new[-1:] if new and new[-1].role == ASSISTANT else ()
        asked = [*_parts(new[: len(new) - len(answered)])]
        self._answer(turn, asked)
        calls = [part for part in _parts(answered) if part.kind == "call"]
        steps = [ToolStep(part.name, call_words(part)[:_HEAD], part.id) for part in calls]
        self._waiting += steps
        for part in _parts(answered):
            # Of a tool that the service runs itself, the result is in the same answer.
            self._result(turn, part)
        self._before = turn
        return tuple(steps)

    def _answer(self, turn: TurnFigures, asked: Sequence[ContentPart]) -> None:
        answered = [step for part in asked if (step := self._result(turn, part)) is not None]
        before = self._before
        if before is None or not answered:
            return
        if len(answered) == 1:
            answered[0].ms = _elapsed(before, turn)
        added = turn.prompt_tokens - before.prompt_tokens - before.completion_tokens
        if not turn.continues or before.prompt_tokens <= 0 or added <= 0:
            return
        characters = sum(len(part.text) for part in asked)
        for step in answered:
            step.tokens = round(added * step.characters / max(characters, 1))
            if turn.prompt_usd is not None:
                step.usd = round(turn.prompt_usd * step.tokens / turn.prompt_tokens, 9)

    def _result(self, turn: TurnFigures, part: ContentPart) -> ToolStep | None:
        if part.kind != "result":
            return None
        step = next((step for step in self._waiting if _is_of(part, step)), None)
        if step is None:
            return None
        self._waiting.remove(step)
        step.result, step.characters = readable_json(part.text[: 4 * _HEAD])[:_HEAD], len(part.text)
        step.failed, step.answered_in = part.failed, turn.interaction
        return step


def _is_of(result: ContentPart, step: ToolStep) -> bool:
    if result.id and step.id:
        return result.id == step.id
    return result.name in ("", step.name)


def _parts(messages: Sequence[ConversationMessage]) -> Iterator[ContentPart]:
    return (part for message in messages for part in message.parts)


def _elapsed(before: TurnFigures, turn: TurnFigures) -> float | None:
    """The time between two answers, without that of the slower call; None for less than a second."""
    if before.at is None or turn.at is None:
        return None
    apart = datetime.fromisoformat(turn.at) - datetime.fromisoformat(before.at)
    left = apart.total_seconds() * 1000 - max(before.latency_ms, turn.latency_ms)
    return round(left) if left >= _SECOND_MS else None
