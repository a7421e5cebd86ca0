"""What a worker tells, in plain values and back."""

import pytest

from tapeway.core.attempts import Attempt
from tapeway.core.miss import Near
from tapeway.journal import Entry
from tapeway.report import Noted
from tapeway.workers.frames import Frames, pack
from tapeway.workers.news import News, Opened, Told, read, written

ENTRY = Entry(
    "tw-1", 1.5, "a/b", "openai", "POST", "/v1/x\udc80", "replayed", 200, 3, 0.25, b"\xffkey"
)
NEAR = Near(4, ({"path": "body.x", "recorded": [1, None], "requested": {"y": True}},), 2)


@pytest.mark.parametrize(
    "news",
    [
        ENTRY,
        ENTRY._replace(
            outcome="miss",
            status=424,
            interaction=None,
            key=None,
            message="replay miss",
            nearest=(NEAR, Near(5)),
            suggestion='ignore = ["body.x"]',
            attempt=2,
        ),
        Noted("live", "a/b"),
        Noted("replayed", "a/b", (1, 2, 3), None, Attempt(b"key", 2)),
        Noted("miss", "a/b", (), "GET /x"),
        Opened(17),
    ],
    ids=lambda news: type(news).__name__,
)
def test_it_arrives_as_it_was_told(news: News) -> None:
    told = Told(12.25, news)
    (value,) = Frames().feed(pack(written(told)))
    found = read(value)

    assert found == told
    assert type(found.news) is type(news)


@pytest.mark.parametrize("value", [None, (), ("entry", 1.0), (1.0, "rumour", 1)])
def test_what_is_no_news_is_refused(value: tuple[str | float, ...] | None) -> None:
    with pytest.raises(ValueError, match="no news"):
        read(value)
