"""What a worker tells of the requests it serves: how they ended, and what the journal is to say.

It is told with the time, which is the same clock in all processes of a machine, so that what
several of them tell can be put in order. This is done for every request there is, so it is quick
before it is anything else.
"""

from typing import NamedTuple, cast

from tapeway.core.cassette.plan import Near
from tapeway.core.http.sdk_conventions import Attempt
from tapeway.core.json_text import Json
from tapeway.core.model.control import Outcome
from tapeway.engine.journal import ServedRequest
from tapeway.engine.report import Noted
from tapeway.workers.frames import Value

_Noted = tuple[Outcome, str, tuple[int, ...], str | None, tuple[bytes, int] | None]
_Near = tuple[int, tuple[dict[str, Json], ...], int]


class News(NamedTuple):
    """What was told at once; `connections` is how many a worker ever opened to upstreams."""

    at: float
    noted: tuple[Noted, ...]
    entry: ServedRequest | None
    connections: int


def written(news: News) -> Value:
    """The same in plain values."""
    at, noted, entry, connections = news
    plain, near = None, None
    if entry is not None:
        plain = tuple(entry)
        if entry.nearest:
            near = tuple([(each.index, each.differences, each.more) for each in entry.nearest])
            plain = tuple(entry._replace(nearest=()))
    told = (at, tuple([_plain(each) for each in noted]), plain, near, connections)
    return cast("Value", told)


def read(value: Value) -> News:
    """What was told."""
    at, noted, fields, near, connections = cast(
        "tuple[float, tuple[_Noted, ...], tuple[object, ...] | None, tuple[_Near, ...] | None, int]",
        value,
    )
    entry = None if fields is None else ServedRequest._make(fields)
    if entry is not None and near is not None:
        entry = entry._replace(nearest=tuple([Near(*each) for each in near]))
    return News(at, tuple([_noted(*each) for each in noted]), entry, connections)


def _plain(noted: Noted) -> _Noted:
    outcome, cassette, tokens, missed, attempt = noted
    tried = None if attempt is None else (attempt.key, attempt.number)
    return outcome, cassette, tokens, missed, tried


def _noted(
    outcome: Outcome,
    cassette: str,
    tokens: tuple[int, ...],
    missed: str | None,
    attempt: tuple[bytes, int] | None,
) -> Noted:
    tried = None if attempt is None else Attempt(*attempt)
    return Noted(outcome, cassette, tokens, missed, tried)
