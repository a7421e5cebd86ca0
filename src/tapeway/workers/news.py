"""What a worker tells of the requests it serves: how they ended, and what the journal is to say.

Each is told with the time, which is the same clock in all processes of a machine, so that what
several of them tell can be put in order.
"""

from typing import NamedTuple, cast

from tapeway.core.attempts import Attempt
from tapeway.core.json_text import Json
from tapeway.core.miss import Near
from tapeway.journal import Entry
from tapeway.report import Noted
from tapeway.workers.frames import Value


class Opened(NamedTuple):
    """How many connections to upstreams a worker ever opened."""

    connections: int


News = Noted | Entry | Opened


class Told(NamedTuple):
    """A piece of news and when it was told."""

    at: float
    news: News


def written(told: Told) -> Value:
    """The same in plain values."""
    return cast("Value", _plain(told))


def _plain(told: Told) -> object:
    at, news = told
    if isinstance(news, Entry):
        near = tuple([(each.index, each.differences, each.more) for each in news.nearest])
        return (at, "entry", tuple(news._replace(nearest=())), near)
    if isinstance(news, Noted):
        attempt = None if news.attempt is None else tuple(news.attempt)
        return (at, "noted", tuple(news._replace(attempt=None)), attempt)
    return (at, "opened", news.connections)


def read(value: Value) -> Told:
    """What was told. Raises ValueError for what nobody tells."""
    match value:
        case (float(at), "entry", tuple(fields), tuple(near)):
            nearest = tuple([_near(each) for each in near])
            return Told(at, Entry._make(fields)._replace(nearest=nearest))
        case (float(at), "noted", tuple(fields), attempt):
            tried = Attempt._make(attempt) if isinstance(attempt, tuple) else None
            return Told(at, Noted._make(fields)._replace(attempt=tried))
        case (float(at), "opened", int(connections)):
            return Told(at, Opened(connections))
    raise ValueError("a worker told something that is no news")


def _near(value: Value) -> Near:
    index, differences, more = cast("tuple[int, tuple[dict[str, Json], ...], int]", value)
    return Near(index, differences, more)
