"""A comparison of cassettes as lines for a terminal, as JSON, and as Markdown for a pull request."""

from collections.abc import Iterator

from tapeway.cli import terminal
from tapeway.core.json_text import dump
from tapeway.core.misses.differences import Difference, difference_document
from tapeway.inspection.pairing import CassetteDiff

_FENCE = "```"
_MOST_IN_MARKDOWN = 100
"""How many changed recordings of a cassette are shown; comments have a limit (GitHub: 65,536)."""


def lines(diff: CassetteDiff) -> Iterator[str]:
    """The comparison in lines for people."""
    first, second = diff.names
    for pair in diff.different:
        yield f"{pair.first.summary}  and  #{pair.second.index}"
        for difference in pair.differences:
            path, recorded, requested = _path_and_values(difference)
            yield terminal.styled(terminal.line(f"  {path}"), "heading")
            yield terminal.styled(terminal.line(f"    {first}: {recorded}"), "bad")
            yield terminal.styled(terminal.line(f"    {second}: {requested}"), "good")
        if pair.more:
            yield "  and more"
    for name, alone in ((first, diff.only_first), (second, diff.only_second)):
        for item in alone:
            yield f"only in {terminal.line(name)}: {item.summary}"
    yield terminal.line(summary(diff))


def summary(diff: CassetteDiff) -> str:
    """The counts in one line."""
    first, second = diff.names
    alike = f"{diff.alike} equal but for ids and times, " if diff.alike else ""
    return (
        f"{diff.equal} equal, {alike}{len(diff.different)} different, "
        f"{len(diff.only_first)} only in {first}, {len(diff.only_second)} only in {second}"
    )


def markdown(diff: CassetteDiff) -> Iterator[str]:
    """The comparison in lines of Markdown: changed values as a diff."""
    first, second = diff.names
    yield f"### {_code(first)} → {_code(second)}"
    yield ""
    yield _text(summary(diff))
    for pair in diff.different[:_MOST_IN_MARKDOWN]:
        yield from ("", _code(pair.first.summary), "", f"{_FENCE}diff")
        for difference in pair.differences:
            path, recorded, requested = _path_and_values(difference)
            yield from (
                _fenced_line(f"@@ {path} @@"),
                _fenced_line(f"- {recorded}"),
                _fenced_line(f"+ {requested}"),
            )
        yield _FENCE
        if pair.more:
            yield from ("", "and more differences")
    if (left := len(diff.different) - _MOST_IN_MARKDOWN) > 0:
        yield from ("", f"and {left} more changed recordings")
    for name, alone in ((first, diff.only_first), (second, diff.only_second)):
        if alone:
            yield from ("", f"Only in {_code(name)}:", "")
            yield from [f"- {_code(recording.summary)}" for recording in alone[:_MOST_IN_MARKDOWN]]
            if (left := len(alone) - _MOST_IN_MARKDOWN) > 0:
                yield f"- and {left} more"


def _path_and_values(difference: Difference) -> tuple[str, str, str]:
    """Its path, and both values as JSON."""
    values = difference_document(difference)
    sides = [
        dump(values[side]).decode() if side in values else "nothing"
        for side in ("recorded", "requested")
    ]
    return str(values["path"]), sides[0], sides[1]


def _code(text: str) -> str:
    """The text as code; what was recorded is anybody's and must not become markup."""
    return f"`` {terminal.line(text)} ``" if "`" in text else f"`{terminal.line(text)}`"


def _text(text: str) -> str:
    return "".join(
        [
            f"\\{character}" if character in "\\`*_[]<>#|" else character
            for character in terminal.line(text)
        ]
    )


def _fenced_line(text: str) -> str:
    """A line of a fenced block, which must not end it."""
    return terminal.line(text).replace(_FENCE, "``\u200b`")
