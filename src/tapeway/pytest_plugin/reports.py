"""Misses in the report of a test, and the report of a run: tapeway itself writes both."""

import json
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ..embedded.deck import Deck
from ..embedded.last import LAST, write_last

_MOST_MISSES = 10
_JSON = ".json"
_FORMS = {".xml": "junit", ".md": "markdown", ".txt": "text", ".html": "html"}
_SUFFIXES = (_JSON, *_FORMS)

Document = Mapping[str, Any]


def miss_section(misses: Sequence[Document], printed: str = "", page: str | None = None) -> str:
    """The misses of a test in the journal, each with message, difference and suggestion.

    A message `printed` in the report of the test is left out. `page` is the report that the run
    leaves, and shows each miss.
    """
    lines: list[str] = []
    for miss in misses[:_MOST_MISSES]:
        message = str(miss["message"])
        if message not in printed:
            lines.append(message)
        lines += [f"  {line}" for line in miss.get("details", ())]
        if page is not None:
            lines.append(f"look at it in a browser: {page}#/journal/{miss['id']}")
    commands = [miss.get("record_command") for miss in misses]
    lines += [
        f"record with: {command}"
        for command in dict.fromkeys(commands)
        if command is not None and not any(command in line for line in (printed, *lines))
    ]
    if (more := len(misses) - _MOST_MISSES) > 0:
        lines.append("1 more miss" if more == 1 else f"{more} more misses")
    return "\n".join(lines)


def check_report(file: str) -> None:
    """Raises UsageError for a file that could not be written at the end."""
    path = Path(file)
    if path.suffix not in _SUFFIXES:
        raise pytest.UsageError(f"--tapeway-report: {path} does not end in {', '.join(_SUFFIXES)}")
    if not path.parent.is_dir():
        raise pytest.UsageError(f"--tapeway-report: there is no folder {path.parent}")


def write_report(file: str, reports: Sequence[Document], deck: Deck) -> None:
    """Write reports, as the admin API returns them, in the form of the file's suffix.

    Raises OSError and DeckError.
    """
    ordered = sorted(reports, key=lambda report: str(report["name"]))
    path = Path(file)
    if path.suffix == _JSON:
        document = {
            "cassettes": ordered,
            "upstream_connections": deck.report()["upstream_connections"],
            "bypassed": [],
            "offline": None,
        }
        text = json.dumps(document) + "\n"
    else:
        text = _written(deck, ordered, format=_FORMS[path.suffix])
    path.write_text(text, encoding="utf-8")


def leave_page(root: Path, reports: Sequence[Document], deck: Deck) -> str | None:
    """Leave the page of the run, and return the line that leads to a miss. Raises OSError and DeckError."""
    write_last(root, _written(deck, reports, format="html", brief="true"))
    if not any(report["misses"] or report["failed"] for report in reports):
        return None
    return f"look at it in a browser: {Path(os.path.relpath(root / LAST))}"


def notes_of(
    deck: Deck,
    reports: Sequence[Document],
    places: Mapping[str, tuple[str, int]],
    root: Path,
    missing: Mapping[str, Collection[str]],
    unclaimed: Sequence[str],
) -> dict[str, Any]:
    """What there is to say of a run, in the form of `POST /api/v1/report/notes`. Raises DeckError.

    `places` has the file of each cassette's test, from the root.
    """
    repository = os.environ.get("GITHUB_WORKSPACE", ".")
    document: dict[str, Any] = deck.admin.call(
        "POST",
        "report/notes",
        {
            "cassettes": list(reports),
            "places": {
                name: {
                    "file": Path(os.path.relpath(root / file, repository)).as_posix(),
                    "line": line,
                }
                for name, (file, line) in places.items()
            },
            "missing": {name: [*keys] for name, keys in missing.items()},
            "unclaimed": list(unclaimed),
        },
    )
    return document


def _written(deck: Deck, reports: Sequence[Document], **form: str) -> str:
    text = deck.admin.text("POST", "report", {"cassettes": list(reports)}, **form)
    return text
