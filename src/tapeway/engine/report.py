"""What a run got out of a cassette: hits, misses, what went unused, tokens not paid for.

A report as people and build servers read it: plain text, Markdown, JUnit's XML.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self
from xml.sax.saxutils import quoteattr

from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.http.sdk_conventions import Attempt, AttemptHistory
from tapeway.core.misses.miss import Miss
from tapeway.core.model.control import Outcome
from tapeway.core.model.interaction import Interaction, fingerprint
from tapeway.core.text import escape_surrogates

MOST_MISSES = 10_000
"""Further ones are not named: a client that goes on missing must not fill the memory."""
TOKENS = ("prompt_tokens", "completion_tokens", "total_tokens")

_MOST_NAMED = 20
"""Misses and unused recordings that a person is shown; the JSON has them all."""
_NO_XML = {each: "\ufffd" for each in range(0x20) if each not in (0x9, 0xA, 0xD)} | {
    0xFFFE: "\ufffd",
    0xFFFF: "\ufffd",
}


class Noted(NamedTuple):
    """How a request ended, as far as it counts: `tokens` those of a hit, `missed` what was missed."""

    outcome: Outcome
    cassette: str
    tokens: tuple[int, ...] = ()
    missed: str | None = None
    attempt: Attempt | None = None

    @classmethod
    def of(
        cls,
        outcome: Outcome,
        cassette: str,
        interaction: Interaction | None,
        miss: Miss | None,
        attempt: Attempt | None,
    ) -> Self:
        """The same of what it was answered with."""
        missed = None if miss is None else f"{miss.method} {miss.target}"
        return cls(outcome, cassette, _tokens(interaction), missed, attempt)


@dataclass(slots=True)
class Tally:
    """Counts for one cassette since it was loaded.

    A call that its SDK repeated is one call, counted as what its last try got. A miss stays listed
    whatever came of a later try.
    """

    replayed: int = 0
    recorded: int = 0
    live: int = 0
    retries: int = 0
    misses: list[str] = field(default_factory=list)
    tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOKENS, 0))
    attempts: AttemptHistory = field(default_factory=AttemptHistory)

    def note(
        self,
        outcome: Outcome,
        interaction: Interaction | None,
        miss: Miss | None,
        attempt: Attempt | None = None,
    ) -> None:
        """Count a request, and for a hit the tokens the upstream would have charged for it."""
        if attempt is None and miss is None and (interaction is None or interaction.usage is None):
            # What most requests are, counted in a third of the time.
            self._count(outcome, 1)
            return
        self.count(Noted.of(outcome, "", interaction, miss, attempt))

    def count(self, noted: Noted) -> None:
        """The same for one of which this much is known."""
        outcome, _, tokens, missed, attempt = noted
        before = self.attempts.follow(attempt, outcome) if attempt is not None else None
        if before is not None:
            self.retries += 1
            self._count(before, -1)
        self._count(outcome, 1)
        if missed is not None and before != "miss" and len(self.misses) < MOST_MISSES:
            self.misses.append(missed)
        for name, count in zip(TOKENS, tokens, strict=False):
            self.tokens[name] += count

    def _count(self, outcome: Outcome, by: int) -> None:
        if outcome == "replayed":
            self.replayed += by
        elif outcome == "recorded":
            self.recorded += by
        elif outcome == "live":
            self.live += by


@dataclass(frozen=True, slots=True)
class Item:
    """A recording as a report names it.

    `mark` finds it again under another number; empty where its number is for good.
    """

    index: int
    method: str
    path: str
    mark: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class CassetteReport:
    """One cassette's part of the report; `unused` and `duplicates` speak of the current take.

    At its eject `laggards` are the instances that go on in the take that ended.
    """

    name: str
    replayed: int
    recorded: int
    live: int
    retries: int
    misses: tuple[str, ...]
    unused: tuple[Item, ...]
    duplicates: tuple[tuple[Item, ...], ...]
    usage: dict[str, int]
    laggards: tuple[str, ...] = ()


def of_cassette(cassette: CassetteIndex, tally: Tally) -> CassetteReport:
    """The report of a loaded cassette."""
    duplicates = [_items(cassette, group) for group in cassette.duplicates()]
    unused = _items(cassette, cassette.unused(), mark=fingerprint)
    return of_counts(cassette.name, tally, unused, duplicates)


def of_counts(
    name: str, tally: Tally, unused: Iterable[Item], duplicates: Iterable[Iterable[Item]]
) -> CassetteReport:
    """The report of a cassette of which these recordings went unused, or answer the same."""
    return CassetteReport(
        name=name,
        replayed=tally.replayed,
        recorded=tally.recorded,
        live=tally.live,
        retries=tally.retries,
        misses=tuple(tally.misses),
        unused=tuple(unused),
        duplicates=tuple(tuple(group) for group in duplicates),
        usage=dict(tally.tokens),
    )


def _items(
    cassette: CassetteIndex,
    indexes: list[int],
    mark: Callable[[Interaction], str] = lambda item: "",
) -> tuple[Item, ...]:
    found = [cassette.get(index) for index in indexes]
    return tuple(
        Item(each.index, each.request.method, each.request.target, mark(each))
        for each in found
        if isinstance(each, Interaction)
    )


def _tokens(interaction: Interaction | None) -> tuple[int, ...]:
    if interaction is None or interaction.usage is None:
        return ()
    counts = map(interaction.usage.get, TOKENS)
    # People edit usage by hand, and `true` is an int too.
    return tuple([count if type(count) is int else 0 for count in counts])


def text(reports: Sequence[CassetteReport]) -> str:
    """A few lines for a terminal."""
    lines = [line for each in reports for line in _lines(each)]
    return "\n".join(lines or ["No cassette was used."]) + "\n"


def markdown(reports: Sequence[CassetteReport]) -> str:
    """A table, and what was missed below it."""
    lines = [
        "| cassette | replayed | recorded | live | missed | retries | unused | tokens saved |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *(f"| {' | '.join(map(str, _row(each)))} |" for each in reports),
    ]
    for each in reports:
        if each.misses:
            lines += ["", f"Missed in {each.name}:", ""]
            lines += [f"- {_quoted(miss)}" for miss in each.misses[:_MOST_NAMED]]
            lines += [f"- {more}" for more in _more(each.misses)]
    return "\n".join(lines) + "\n"


def junit(reports: Sequence[CassetteReport]) -> str:
    """One suite a cassette, in which each miss is a failed test."""
    suites = "".join(_suite(each) for each in reports)
    return f'<?xml version="1.0" encoding="utf-8"?>\n<testsuites name="tapeway">\n{suites}</testsuites>\n'


def _lines(report: CassetteReport) -> Iterator[str]:
    counts = [
        (report.replayed, "replayed"),
        (report.recorded, "recorded"),
        (report.live, "passed on"),
        (len(report.misses), "missed"),
        (report.retries, "retried"),
        (len(report.unused), "unused"),
    ]
    told = ", ".join(f"{count} {what}" for count, what in counts if count)
    yield f"{report.name}: {told or 'nothing asked'}"
    if tokens := report.usage["total_tokens"]:
        yield f"  {tokens} tokens not paid for"
    yield from (f"  missed: {_plain(miss)}" for miss in report.misses[:_MOST_NAMED])
    yield from (f"  missed: {more}" for more in _more(report.misses))
    yield from (f"  unused: {_named(item)}" for item in report.unused[:_MOST_NAMED])


def _row(report: CassetteReport) -> tuple[str | int, ...]:
    return (
        report.name,
        report.replayed,
        report.recorded,
        report.live,
        len(report.misses),
        report.retries,
        len(report.unused),
        report.usage["total_tokens"],
    )


def _suite(report: CassetteReport) -> str:
    name = quoteattr(f"tapeway.{report.name}")
    served = report.replayed + report.recorded + report.live
    cases = [f"<testcase classname={name} name={quoteattr(f'{served} calls answered')}/>"]
    for miss in report.misses:
        shown = quoteattr(_plain(miss))
        cases.append(
            f"<testcase classname={name} name={shown}>"
            f'<failure type="replay_miss" message={shown}/></testcase>'
        )
    counts = f'tests="{len(cases)}" failures="{len(report.misses)}" errors="0" skipped="0"'
    body = "".join(f"    {case}\n" for case in cases)
    return f"  <testsuite name={name} {counts}>\n{body}  </testsuite>\n"


def _more(misses: Sequence[str]) -> Iterator[str]:
    if (count := len(misses) - _MOST_NAMED) > 0:
        yield f"{count} more"


def _quoted(miss: str) -> str:
    # A back-tick would end the code that a back-tick began.
    return f"`{_plain(miss).replace('`', '%60')}`"


def _named(item: Item) -> str:
    return f"#{item.index} {_plain(f'{item.method} {item.path}')}"


def _plain(value: str) -> str:
    return escape_surrogates(value).translate(_NO_XML)
