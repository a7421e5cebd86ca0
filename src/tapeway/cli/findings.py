"""Secrets found in cassettes, as they are shown: where, of what kind, and never what."""

import json
from collections.abc import Iterable
from dataclasses import dataclass

import click

from tapeway.core.redaction.findings import Finding
from tapeway.formats.errors import shown

CLEAN, FOUND, UNREADABLE = 0, 1, 2
"""The exit codes of the commands that look for secrets."""


@dataclass(frozen=True, slots=True)
class Found:
    """A finding in a cassette's file, and what became of it."""

    file: str
    finding: Finding
    deed: str = "found"


def report(found: Iterable[Found], form: str) -> None:
    """Print them, a line each or as one JSON list."""
    if form == "json":
        click.echo(json.dumps([_fields(each) for each in found], indent=2))
        return
    for each in found:
        finding = each.finding
        deed = "" if each.deed == "found" else each.deed
        begins = f", begins with {finding.prefix!r}" if finding.prefix else ""
        told = [each.file, deed, _place(finding), _legible(finding.kind) + begins]
        click.echo(": ".join(filter(None, told)))


def _fields(found: Found) -> dict[str, str | int | None]:
    place = found.finding.place
    index = place[1] if len(place) > 1 and place[0] == "interactions" else None
    return {
        "file": found.file,
        "interaction": index,
        "place": _place(found.finding),
        "kind": found.finding.kind,
        "prefix": found.finding.prefix,
        "deed": found.deed,
    }


def _place(finding: Finding) -> str:
    return _legible(shown(finding.place))


def _legible(text: str) -> str:
    # Names in a cassette are anybody's: none of them steers the terminal.
    return "".join([each if each.isprintable() else f"\\u{ord(each):04x}" for each in text])
