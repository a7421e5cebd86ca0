"""The report as annotations of a build: workflow commands of GitHub, which Gitea and Forgejo read too.

They are lines of the form `::error file=F,line=N,title=T::MESSAGE` in a step's output.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tapeway.engine.report.lines import miss_lines, printable, remarks
from tapeway.engine.report.summary import CassetteReport, Isolation

_MOST = 10
"""GitHub shows so many errors and so many warnings of a step."""

_LONGEST = 4000


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """A file, by its path in the repository, and a line in it counted from 1."""

    file: str
    line: int = 1


Locate = Callable[[str], SourcePlace | None]
"""The place of a cassette: the file, or the test that uses it."""


def annotations(
    reports: Sequence[CassetteReport], locate: Locate, isolation: Isolation | None = None
) -> list[str]:
    """An error for each miss and each host past the proxy, and warnings for other remarks.

    At most ten of a kind are told apart; the last one counts the rest.
    """
    errors = [
        _command("error", locate(report.name), "not recorded", "\n".join(miss_lines(miss)))
        for report in reports
        for miss in report.misses
    ]
    errors += [
        _command("error", None, "bypassed", f"{host} was asked for past the proxy")
        for host in (isolation.violations if isolation is not None else ())
    ]
    warnings = [line for report in reports for line in _warnings(report, locate(report.name))]
    return [*_bounded("error", errors), *_bounded("warning", warnings)]


def _warnings(report: CassetteReport, place: SourcePlace | None) -> Iterator[str]:
    for each in remarks(report):
        listed = [f"cassette {report.name}", *each.notices, *each.items[:_MOST]]
        if (rest := len(each.items) - _MOST) > 0:
            listed.append(f"{rest} more")
        yield _command("warning", place, each.title.lower(), "\n".join(listed))


def _bounded(kind: str, commands: Sequence[str]) -> Sequence[str]:
    if len(commands) <= _MOST:
        return commands
    rest = len(commands) - _MOST + 1
    return [*commands[: _MOST - 1], _command(kind, None, "more", f"{rest} more {kind}s")]


def _command(kind: str, place: SourcePlace | None, title: str, message: str) -> str:
    properties = {"title": f"tapeway: {title}"}
    if place is not None:
        properties = {"file": place.file, "line": str(place.line), **properties}
    given = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{kind} {given}::{_data(message[:_LONGEST])}"


def _data(text: str) -> str:
    """A message, escaped as by the runner's toolkit: a line break would end it."""
    return printable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
