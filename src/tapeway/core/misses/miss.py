"""A miss: a request without a recording, the explanation, and the message for the client."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from tapeway.core.json_text import Json, dump
from tapeway.core.matching.rules import Rules
from tapeway.core.misses.neighbours import Neighbours
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.interaction import AnyInteraction
from tapeway.core.model.messages import LARGE_BODY, Request
from tapeway.core.text import escape_surrogates, readable_json

_MOST_PATHS = 2
"""How many paths the message names; the body of the error response has the others."""
_LONGEST_PATH = 120
_MOST_INDEXES = 5
MOST_CHARACTERS = 600
"""Of a message: SDKs print nothing else of a miss."""
RULE_NOTE = "rule that would match, for [rules] in tapeway.toml: "
ABSENT_NOTE = ": there is no cassette "
"""In the message for a cassette that does not exist: the name follows."""
RECORD_NOTE = "; record it with "
"""In the message for a cassette that does not exist: the command follows."""
_NO_COMMAND = "--mode auto"


@dataclass(frozen=True, slots=True)
class NearestRecording:
    """A recording and the differences of its request, for people.

    Each of `differences` has a `path` and, where there is a value, `recorded` and `requested`;
    `more` counts the differences that are left out. `base` names the base that the recording is in, if
    it is not in the cassette itself.
    """

    index: int
    differences: tuple[dict[str, Any], ...] = ()
    more: int = 0
    base: str = ""

    @property
    def shown(self) -> str:
        """The recording in a word or two."""
        return f"#{self.index} of '{self.base}'" if self.base else f"#{self.index}"

    @property
    def document(self) -> dict[str, Json]:
        differences: list[Json] = list(self.differences)
        document: dict[str, Json] = {
            "index": self.index,
            "differences": differences,
            "more": self.more,
        }
        return {**document, "base": self.base} if self.base else document


@dataclass(frozen=True, slots=True)
class MissExplanation:
    """The nearest recordings, and rules that would make the first match.

    `note` explains why no recording was compared, `refusal` why such rules are not suggested.
    `absent` reports a missing cassette, with similar names.
    """

    nearest: tuple[NearestRecording, ...] = ()
    suggestion: str | None = None
    refusal: str | None = None
    note: str | None = None
    absent: tuple[str, ...] | None = None


NO_EXPLANATION = MissExplanation()


class MissedRequest(NamedTuple):
    """A missed request in the journal: redacted, and without a large body.

    `size` is the size of the body; `used_up` lists the recordings that answered in this take.
    """

    request: Request
    size: int
    used_up: tuple[int, ...] = ()

    @property
    def is_whole(self) -> bool:
        return len(self.request.body) == self.size


class SearchedCassette(Protocol):
    """The searched cassette at the time of the search."""

    head: CassetteHead
    rules: Rules

    @property
    def version(self) -> object:
        """A value that changes with the recordings, the keys and the rules."""

    def __len__(self) -> int: ...

    def in_base(self, index: int) -> tuple[str, int] | None:
        """The base that a recording is in, and the index there; None for the cassette's own."""

    def get(self, index: int) -> AnyInteraction | None: ...

    def neighbours(self) -> Neighbours: ...

    def has_route(self, route: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class Miss:
    """A redacted request without an answer; `used_up` lists recordings used in this take."""

    cassette: str
    request: Request
    key: bytes
    used_up: tuple[int, ...] = ()
    explanation: MissExplanation = NO_EXPLANATION
    note: str | None = None
    """Why a recording of the requested call cannot answer."""
    record_command: str | None = None
    """The command that records the request."""
    before: str = ""
    """Why the service is not asked yet."""
    searched: SearchedCassette | None = field(default=None, compare=False, repr=False)

    @property
    def method(self) -> str:
        return self.request.method

    @property
    def target(self) -> str:
        return self.request.target

    @property
    def kept(self) -> MissedRequest:
        """The part that the journal keeps."""
        request = self.request
        size = len(request.body) if request.file is None else request.file.size
        if size > LARGE_BODY:
            request = replace(request, body=b"", file=None)
        return MissedRequest(request, size, self.used_up)

    @property
    def message(self) -> str:
        """One line for the client, the log and the journal."""
        request = f"replay miss: {self.method} {self.target.partition('?')[0]}"
        if self.used_up:
            often = "once" if len(self.used_up) == 1 else f"{len(self.used_up)} times"
            return (
                f"{request} is in cassette '{self.cassette}' {often}, "
                f"all used up in this take: {_indexes_text(self.used_up)}"
            )
        if (near := self.explanation.absent) is not None:
            names = " or ".join(f"'{name}'" for name in near)
            meant = f" (is {names} meant?)" if near else ""
            command = self.record_command or _NO_COMMAND
            return f"{request}{ABSENT_NOTE}'{self.cassette}'{meant}{RECORD_NOTE}{command}"
        reason = self.note or self.explanation.note
        missing = f"{request} is not in cassette '{self.cassette}'{self.before}"
        if reason is None and self.explanation.nearest:
            reason = _nearest_text(self.explanation.nearest[0])
            return _with_details(f"{missing}; {reason}", self.explanation)
        sentences = [
            sentence
            for sentence in (missing, reason, self.explanation.refusal)
            if sentence is not None
        ]
        return "; ".join(sentences)


def rule_note(suggestion: str) -> str:
    """The end of a message with a rule, ready for the user's file."""
    return f"; {RULE_NOTE}{', '.join(suggestion.splitlines())}"


def _with_details(message: str, explanation: MissExplanation) -> str:
    """A message with the values of its first difference and the rule, as far as there is room."""
    for difference in explanation.nearest[0].differences[:1]:
        if "recorded" in difference or "requested" in difference:
            message += f": {changed_value(difference)}"
    rule = "" if explanation.suggestion is None else rule_note(explanation.suggestion)
    rule = rule if explanation.refusal is None else f"; {explanation.refusal}"
    return message + rule if len(message) + len(rule) <= MOST_CHARACTERS else message


def changed_value(difference: Mapping[str, Json], around: int = 60) -> str:
    """Both values around their first difference, `around` characters of each at most."""
    sides = [difference.get(side) for side in ("recorded", "requested")]
    texts = [side if isinstance(side, str) else dump(side).decode() for side in sides]
    plain = [readable_json(text) for text in texts]
    texts = plain if plain[0] != plain[1] else texts
    same = [one == other for one, other in zip(*texts, strict=False)]
    start = max(0, [*same, False].index(False) - around // 3)
    start = start if max(map(len, texts)) > around else 0
    end = start + around
    shown = [
        f"{'…' if start else ''}{text[start:end]}{'…' if len(text) > end else ''}" for text in texts
    ]
    there = [side in difference for side in ("recorded", "requested")]
    values = [text if is_there else "nothing" for text, is_there in zip(shown, there, strict=True)]
    return escape_surrogates(" ".join(f"{values[0]} → {values[1]}".split()))


def difference_text(difference: Mapping[str, Json]) -> str:
    """A difference in one line: path, recorded value and requested value."""
    path = _short_path(str(difference["path"]))
    sides = [
        f"{side} {dump(difference[side]).decode() if side in difference else 'nothing'}"
        for side in ("recorded", "requested")
    ]
    return f"{path}: {', '.join(sides)}"


def _indexes_text(indexes: tuple[int, ...]) -> str:
    text = ", ".join(f"#{index}" for index in indexes[:_MOST_INDEXES])
    return text if len(indexes) <= _MOST_INDEXES else f"{text} …"


def _nearest_text(nearest: NearestRecording) -> str:
    if not nearest.differences:
        return f"nearest {nearest.shown} differs only in its credential"
    paths = [
        _short_path(str(difference["path"])) for difference in nearest.differences[:_MOST_PATHS]
    ]
    more = len(nearest.differences) - len(paths) + nearest.more
    if more:
        return f"nearest {nearest.shown} differs at {', '.join(paths)} and {more} more"
    return f"nearest {nearest.shown} differs at {' and '.join(paths)}"


def _short_path(path: str) -> str:
    path = " ".join(escape_surrogates(path.removeprefix("body.")).splitlines())
    return path if len(path) <= _LONGEST_PATH else f"{path[:_LONGEST_PATH]}…"
