"""The conflict markers of git in a file after a merge of two branches without a merge driver.

git's manual, git-merge, "How conflicts are presented". No line of a cassette as tapeway writes it
begins like a marker.
"""

import re
from typing import NamedTuple

from tapeway.formats.errors import FormatFault

_MARKER = re.compile(rb"^(<{7}|\|{7}|={7}|>{7})(?=[ \r\n]|\Z)", re.MULTILINE)
_START, _BASE, _MIDDLE, _END = b"<" * 7, b"|" * 7, b"=" * 7, b">" * 7
_NEXT = {b"": _START, _START: _BASE + _MIDDLE, _BASE: _MIDDLE, _MIDDLE: _END, _END: _START}


class Sides(NamedTuple):
    """The versions in a file with markers; git writes the base only in the style `diff3`."""

    base: bytes | None
    ours: bytes
    theirs: bytes


def first_line(text: bytes) -> int | None:
    """The line of the first conflict, from 1; None in a file without."""
    match = re.search(rb"^<{7}(?=[ \r\n]|\Z)", text, re.MULTILINE)
    return None if match is None else text.count(b"\n", 0, match.start()) + 1


def fault_of(text: bytes, fault: FormatFault) -> FormatFault:
    """The fault to report for an unparsable cassette: the conflict, if there is one."""
    line = first_line(text)
    if line is None:
        return fault
    return FormatFault(
        "git left conflict markers here",
        line=line,
        advice="merge both sides with `tapeway cassette merge FILE`",
    )


def sides(text: bytes) -> Sides:
    """The versions in a file. Raises FormatFault for markers that are not in git's order."""
    parts: dict[bytes, list[bytes]] = {_START: [], _BASE: [], _MIDDLE: []}
    state, with_base = b"", False
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        match = _MARKER.match(line)
        if match is None:
            for name, lines in parts.items():
                if state in (b"", _END, name):
                    lines.append(line)
        elif match[1] not in _NEXT[state]:
            raise FormatFault("this conflict marker is not where git puts one", line=number)
        else:
            state = match[1]
            with_base |= state == _BASE
    if state not in (b"", _END):
        raise FormatFault("the last conflict marker is missing")
    ours, base, theirs = [b"".join(part) for part in parts.values()]
    return Sides(base if with_base else None, ours, theirs)
