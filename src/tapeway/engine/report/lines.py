"""The lines about one cassette that all forms for people share, and the causes of misses."""

import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tapeway.core.json_text import dump
from tapeway.core.misses.miss import (
    ABSENT_NOTE,
    RECORD_NOTE,
    RULE_NOTE,
    changed_value,
    difference_text,
)
from tapeway.core.text import escape_surrogates
from tapeway.engine.faulted_calls import FaultedCall, Next
from tapeway.engine.journal import MissedCall, UnrecordedAnswer
from tapeway.engine.report.summary import CassetteReport, ModelTokens, Savings, dated_notices

_DONE: Mapping[Next, str] = {
    "retried": "asked for again",
    "took_for_whole": "taken for whole",
    "gave_up": "not asked for again",
}
"""What clients did with answers that faults were laid over."""
_NORMALISED = {
    "uuid": "a UUID",
    "ulid": "a ULID",
    "iso8601": "a time",
    "date": "a date",
    "time": "a time of day",
    "epoch": "a time",
    "duration": "a duration",
    "tmp_path": "a temporary folder",
}
"""What a normaliser replaces, for people; another one is named as it is."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why requests missed, and a rule under which the requests would match, if known."""

    text: str
    rule: str | None
    misses: tuple[MissedCall, ...]

    @property
    def times(self) -> int:
        """How many requests missed."""
        return sum(miss.times for miss in self.misses)

    @property
    def line(self) -> str:
        """The cause in one line, with the rule for the user's own file."""
        counted = "1 miss" if self.times == 1 else f"{self.times} misses, one cause"
        rule = "" if self.rule is None else f"; rule: {self.rule} in tapeway.toml [rules]"
        return f"{counted}: {self.text}{rule}"


def causes(misses: Iterable[MissedCall]) -> list[Cause]:
    """The causes of misses, the most frequent first."""
    groups: dict[tuple[str, ...], list[MissedCall]] = defaultdict(list)
    for miss in misses:
        groups[_identity(miss)].append(miss)
    by_cause = [_cause(group) for group in groups.values()]
    return sorted(by_cause, key=lambda cause: -cause.times)


def shared_causes(misses: Iterable[MissedCall]) -> list[Cause]:
    """The causes shared by several listed misses."""
    return [
        cause
        for cause in causes(misses)
        if len(cause.misses) > 1 and not _is_absent(cause.misses[0])
    ]


def listed(misses: Iterable[MissedCall]) -> Iterator[MissedCall]:
    """The misses that a report lists: requests to a cassette that does not exist are one."""
    absent: dict[tuple[str, ...], MissedCall] = {}
    others = []
    for miss in misses:
        identity = _identity(miss)
        if not _is_absent(miss):
            others.append(miss)
        elif (known := absent.get(identity)) is None:
            absent[identity] = miss
        else:
            absent[identity] = replace(known, times=known.times + miss.times)
    yield from absent.values()
    yield from others


def _identity(miss: MissedCall) -> tuple[str, ...]:
    """Equal for misses of one cause."""
    if miss.suggestion is not None:
        return ("rule", miss.suggestion)
    if differences := [
        difference for nearest in miss.nearest[:1] for difference in nearest.differences
    ]:
        return ("difference", dump(differences[0]).decode())
    message = _message_without_request(miss)
    return ("said", message) if _is_absent(miss) else ("said", message, miss.method, miss.path)


def _is_absent(miss: MissedCall) -> bool:
    return _message_without_request(miss).startswith(ABSENT_NOTE)


def _message_without_request(miss: MissedCall) -> str:
    """The message without the leading request."""
    request = f"{miss.method} {miss.path.partition('?')[0]}"
    return miss.message.removeprefix("replay miss: ").removeprefix(request)


def _cause(misses: Sequence[MissedCall]) -> Cause:
    first = misses[0]
    if first.suggestion is not None:
        rule = ", ".join(first.suggestion.splitlines())
        return Cause(_explained(first.suggestion) or rule, rule, tuple(misses))
    for nearest in first.nearest[:1]:
        for difference in nearest.differences[:1]:
            path = str(difference["path"]).removeprefix("body.")
            return Cause(f"{path}: {changed_value(difference)}", None, tuple(misses))
    text = _message_without_request(first).partition(f"; {RULE_NOTE}")[0]
    if _is_absent(first):
        absent = text.removeprefix(": ").partition(RECORD_NOTE)[0]
        return Cause(absent, None, tuple(misses))
    return Cause(f"{first.method} {first.path}{text}", None, tuple(misses))


def _explained(suggestion: str) -> str:
    """What a suggested rule leaves out, in words."""
    try:
        rules = tomllib.loads(suggestion)
    except tomllib.TOMLDecodeError:
        return ""
    settings = [_NORMALISED.get(name, name) for name in rules.get("normalise", [])]
    settings += [str(path).removeprefix("body.") for path in rules.get("ignore", [])]
    settings += [f"text of the form {name}" for name in rules.get("patterns", {})]
    settings += [f"the header {name}" for name in rules.get("ignore_vary", [])]
    settings += [f"{old} in place of {new}" for old, new in rules.get("rewrite", {}).items()]
    settings += [f"what {name} says of its surroundings" for name in rules.get("presets", [])]
    return " and ".join(dict.fromkeys(settings))


MOST_NAMED = 20
"""Misses and recordings of a kind that text and Markdown name; JSON and JUnit have them all."""

_MOST_DIFFERENCES = 5
_NOT_XML = {code: "\ufffd" for code in range(0x20) if code not in (0x9, 0xA, 0xD)} | {
    0xFFFE: "\ufffd",
    0xFFFF: "\ufffd",
}
"""Characters that XML 1.0 (section 2.2) does not allow, replaced in every form."""


@dataclass(frozen=True, slots=True)
class Remark:
    """What needs attention: what is said of each item, the title of their list, and the items.

    `notices` are about all of them.
    """

    label: str
    title: str
    items: Sequence[str]
    notices: Sequence[str] = ()

    @property
    def lines(self) -> Iterator[str]:
        """All of it, a line each."""
        yield from self.notices
        yield from (f"{self.label}: {item}" for item in self.items)


def remarks(report: CassetteReport) -> Iterator[Remark]:
    """What there is to say about calls and recordings; nothing of a kind without any."""
    duplicates = [
        f"{', '.join(f'#{recording.index}' for recording in group)} {group[0].method} {group[0].path}"
        for group in report.duplicates
    ]
    kinds = (
        ("failed", "Calls that failed", [*failure_titles(report.failed)]),
        ("unused", "Not used", [recording.title for recording in report.unused]),
        (
            "not reached to its end",
            "Sessions whose tail was not reached",
            [recording.title for recording in report.unreached],
        ),
        ("recorded more than once", "Recorded more than once", duplicates),
        ("stale", "Older than they may be", [recording.title for recording in report.stale]),
        (
            "without its protocol's end mark",
            "Streams without their protocol's end mark",
            [recording.title for recording in report.unmarked],
        ),
        (
            "told apart by a header that does not count",
            "Equal requests that a header told apart",
            report.told_apart,
        ),
        (
            "leads around tapeway",
            "Addresses in responses that lead around tapeway",
            [
                f"{origin}, which no route leads to: --route NAME={origin}"
                for origin in report.elsewhere
            ],
        ),
    )
    yield from (Remark(label, title, items) for label, title, items in kinds if items)
    if report.unrecorded:
        items = [unrecorded_title(answer) for answer in report.unrecorded]
        yield Remark("not stored", "Live answers that were not stored", items)
    if report.repeated:
        titles = [recording.title for recording in report.repeated]
        title = "Answers of a model that several equal calls got"
        yield Remark("given to equal calls", title, titles, [*repeated_notices(report.repeated)])
    if report.dated:
        yield Remark(
            "says when it was made",
            "Recordings that say when they were made",
            [recording.title for recording in report.dated],
            [*dated_notices(report.dated)],
        )


def failure_titles(failed: Mapping[str, int]) -> Iterator[str]:
    """The errors that calls got from tapeway itself, a code each."""
    for code, times in failed.items():
        yield code + (f" ({times} times)" if times > 1 else "")


def unrecorded_title(answer: UnrecordedAnswer) -> str:
    """A live answer that was not stored, and why, in one line."""
    often = f" ({answer.times} times)" if answer.times > 1 else ""
    return f"{answer.method} {answer.path}: {answer.reason}{often}"


def repeated_notices(repeated: Sequence[object]) -> Iterator[str]:
    """Lines about recordings that answered equal calls in the take of the recording."""
    if repeated:
        recordings = counted(len(repeated), "recorded answer")
        verb = "was" if len(repeated) == 1 else "were"
        yield (
            f"{recordings} of a model {verb} given to equal calls of the same take too: --repeats miss "
            "or mode record asks the model each time"
        )


def faulted_notices(faulted: Sequence[FaultedCall]) -> Iterator[str]:
    """A line about the answers that faults were laid over, and what clients did next."""
    if faulted:
        counts = Counter([call.next for call in faulted])
        done = ", ".join([f"{counts[next]} {what}" for next, what in _DONE.items() if counts[next]])
        yield f"{counted(len(faulted), 'answer')} with a fault: {done}"


def gains(report: CassetteReport) -> Iterator[str]:
    """What replays saved, and what was kept out of new recordings."""
    if tokens := report.usage["total_tokens"]:
        usd = report.saved.usd
        money = "" if usd is None else f", {dollars(usd)} at {report.saved.prices}"
        yield f"{counted(tokens, 'token')} saved{money}"
    for model in report.saved.unpriced:
        calls = counted(model.calls, "call")
        yield f"no price is known for {model.model}: {calls}, {counted(model.tokens, 'token')}"
    if report.redacted:
        ordered = sorted(report.redacted_kinds.items(), key=lambda kind: (-kind[1], kind[0]))
        kinds = ", ".join([f"{kind} {count}" for kind, count in ordered])
        yield f"{counted(report.redacted, 'secret')} replaced: {kinds}"


def gains_of_all(reports: Iterable[CassetteReport]) -> Iterator[str]:
    """What replays of several cassettes saved together."""
    models: dict[str, list[int]] = {}
    usd: list[float] = []
    tokens = 0
    redacted = Counter[str]()
    prices = ""
    for report in reports:
        tokens += report.usage["total_tokens"]
        redacted.update(report.redacted_kinds)
        prices = prices or report.saved.prices
        usd += [] if report.saved.usd is None else [report.saved.usd]
        for model in report.saved.unpriced:
            counts = models.setdefault(model.model, [0, 0, 0])
            for at, count in enumerate((model.calls, model.prompt_tokens, model.completion_tokens)):
                counts[at] += count
    unpriced = tuple(ModelTokens(model, *counts) for model, counts in models.items())
    saved = Savings(sum(usd) if any(usd) or not models else None, unpriced, prices)
    yield from gains(
        CassetteReport(
            *("", 0, 0, 0, 0, (), (), ()),
            usage={"total_tokens": tokens},
            saved=saved,
            redacted_kinds=redacted,
        )
    )


def counted(count: int, noun: str) -> str:
    """`1 call`, `2 calls`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def dollars(usd: float) -> str:
    """An amount in US dollars, small ones to four places."""
    return f"${usd:.2f}" if usd >= 1 else f"${usd:.4f}"


def miss_lines(miss: MissedCall, *, rule: bool = True) -> list[str]:
    """A miss for people: its message, further differences and the suggested `rule`, a line each."""
    often = f" ({miss.times} times)" if miss.times > 1 else ""
    message = miss.message.removeprefix("replay miss: ").partition(f"; {RULE_NOTE}")[0]
    lines = [f"{message}{often}"]
    for nearest in miss.nearest[:1]:
        shown = nearest.differences[:_MOST_DIFFERENCES]
        lines += [
            difference_text(difference)
            for difference in shown
            if changed_value(difference) not in miss.message
        ]
        if more := len(nearest.differences) - len(shown) + nearest.more:
            lines.append(f"{more} more difference{'' if more == 1 else 's'}")
    if rule and miss.suggestion is not None:
        lines += [f"rule that would match: {line}" for line in miss.suggestion.splitlines()]
    return lines


def record_lines(misses: Iterable[MissedCall]) -> list[str]:
    """The commands that record misses, a line each, without those that a message has."""
    commands = [miss.record_command for miss in misses if RECORD_NOTE not in miss.message]
    return [f"record with: {command}" for command in dict.fromkeys(filter(None, commands))]


def more(listed: Sequence[object]) -> Iterator[str]:
    """A line in place of unnamed entries."""
    if (count := len(listed) - MOST_NAMED) > 0:
        yield f"{count} more"


def printable(text: str) -> str:
    """The text with what no form can hold replaced."""
    return escape_surrogates(text).translate(_NOT_XML)
