"""Finds recorded requests that state the time or a temporary folder of the run, and will miss later."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from email.utils import parsedate_to_datetime
from typing import Literal

from tapeway.core.dates import is_written_date, needles, says_day, says_time
from tapeway.core.json_text import Json
from tapeway.core.matching.credential_fields import compared_document
from tapeway.core.matching.normalisers import NORMALISERS, HexText, Match, compile_pattern
from tapeway.core.matching.rules import Rules
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request

_PATH = "tmp_path"
_KINDS = ("iso8601", "date", _PATH)

_FOLDERS = (b"/tmp/", b"/var/folders/", b"temp\\\\")
_OF_ONE_RUN = re.compile(
    r"/(?:pytest-of-[^/]+/pytest-[0-9]|tmp\.[0-9A-Za-z]{6}|tmp[0-9a-z_]{8}\b"
    r"|[A-Za-z_-]+-(?=[A-Za-z]*[0-9])[0-9A-Za-z]{6}\b)"
    r"|Temp[\\/]+(?:tmp|pytest-of-)"
)
"""Folders by mktemp, tempfile, Node.js and pytest. Other temporary folders may be there again."""


@dataclass(frozen=True, slots=True)
class FoundMoment:
    """A mention of the run in a request, and the normalisers that would replace it."""

    kind: Literal["date", "time", "path"]
    normalisers: tuple[str, ...]


def found_moment(
    request: Request, rules: Rules, moments: Collection[datetime]
) -> FoundMoment | None:
    """The mention of one of some moments in a recorded request, outside the reach of rules.

    `moments` is one moment on the clocks of several time zones. A temporary folder is a mention too.
    """
    where = (request.target.encode("utf-8", "surrogateescape") + b" " + request.body).lower()
    if not any(needle in where for needle in _FOLDERS) and not any(
        needle in where for moment in moments for needle in needles(moment)
    ):
        return None
    days, names = False, dict[str, None]()
    for text in _texts(compared_document(request, rules, recorded=True)):
        for name, is_day in _moments_in(text, moments):
            names[name] = None
            days = days or is_day
        if any(_OF_ONE_RUN.search(text, *place) for place in _places_of(_PATH, text)):
            names[_PATH] = None
    if not names:
        return None
    kind: Literal["date", "time", "path"] = "path" if {*names} == {_PATH} else "time"
    return FoundMoment("date" if days else kind, tuple(kind for kind in _KINDS if kind in names))


def recorded_on(recording: Interaction, rules: Rules) -> date | None:
    """The day of a recording by the `Date` of its answer, None unless the request states the day."""
    stated = recording.response.head.value(b"date") or b""
    try:
        moment = parsedate_to_datetime(stated.decode("latin-1"))
    except (ValueError, OverflowError):
        return None
    found = found_moment(recording.request, rules, [moment])
    return moment.date() if found is not None and found.kind == "date" else None


def _texts(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        if not isinstance(value, HexText):
            yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def _moments_in(text: str, moments: Collection[datetime]) -> Iterator[tuple[str, bool]]:
    """The normaliser for each of the moments that a text names, and whether it names the day."""
    days = {moment.date() for moment in moments}
    stamps = _places_of("iso8601", text)
    if any(text.startswith(day.isoformat(), start) for start, _ in stamps for day in days):
        yield "iso8601", True
    for start, end in _places_of("date", text):
        is_stamp = any(first <= start < last for first, last in stamps)
        if is_stamp or not is_written_date(text, start, end):
            continue
        if any(says_day(text[start:end], day) for day in days):
            yield "date", True
        elif any(says_time(text, start, end, moment) for moment in moments):
            yield "date", False


def _places_of(name: str, text: str) -> Sequence[tuple[int, int]]:
    """Where a text has what a normaliser replaces."""
    places: list[tuple[int, int]] = []

    def note(match: Match) -> str:
        places.append(match.span())
        return ""

    compile_pattern(NORMALISERS[name].pattern).sub(note, text)
    return places
