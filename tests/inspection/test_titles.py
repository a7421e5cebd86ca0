"""Lists that are searched, filtered and ordered."""

import json
from dataclasses import replace

import pytest

from tapeway.core.model.interaction import Interaction
from tapeway.inspection.titles import Order, Show, TitleQuery, Titles
from tests.conversations.recorded_calls import assistant, chat, user


def listed() -> list[Interaction]:
    """Five calls of a model, each with another latency."""
    calls = [chat(at, [user(f"question {at}")], f"answer {at}") for at in range(5)]
    return [replace(call, latency_ms=float(call.index * 7 % 5)) for call in calls]


def found(query: TitleQuery, most_searched: int = 2**20) -> dict[str, object]:
    titles = Titles(most_searched)
    titles.add([*listed()])
    page: dict[str, object] = json.loads(titles.page(query, None, 100, {1, 3}))
    return page


@pytest.mark.parametrize(
    ("text", "indexes"),
    [("QUESTION 3", [3]), ("answer", [0, 1, 2, 3, 4]), ("#2", [2]), ("nothing of it", [])],
)
def test_a_text_of_request_answer_or_title_is_found(text: str, indexes: list[int]) -> None:
    assert found(TitleQuery(text))["found"] == indexes


@pytest.mark.parametrize(
    ("show", "order", "indexes"),
    [
        ("unused", None, [1, 3]),
        ("failed", None, []),
        (None, "slowest", [2, 4, 1, 3, 0]),
        ("unused", "slowest", [1, 3]),
    ],
)
def test_a_list_is_filtered_and_ordered(
    show: Show | None, order: Order | None, indexes: list[int]
) -> None:
    page = found(TitleQuery("", show, order))

    assert page["found"] == indexes
    assert page["total"] == 5


def test_the_next_page_begins_behind_an_index_in_the_order_that_was_asked_for() -> None:
    titles, query = Titles(), TitleQuery("", None, "slowest")
    titles.add([*listed()])

    pages = [json.loads(titles.page(query, after, 2, None)) for after in (None, 4, 3)]

    assert [[title["index"] for title in page["titles"]] for page in pages] == [[2, 4], [1, 3], [0]]
    assert [page["next"] for page in pages] == [4, 3, None]
    assert [page["found"] for page in pages] == [[2, 4, 1, 3, 0], None, None]


def test_texts_beyond_the_bound_are_not_kept_and_the_page_says_so() -> None:
    page = found(TitleQuery("messages"), most_searched=0)

    assert (page["found"], page["unsearched"]) == ([], 5)
    assert found(TitleQuery("answer 2"), most_searched=0)["found"] == [2]


def test_the_latest_answer_of_a_history_is_no_more_than_one_of_its_texts() -> None:
    titles = Titles()
    titles.add([chat(0, [user("a"), assistant("earlier words"), user("b")], "c")])

    page = json.loads(titles.page(TitleQuery("earlier words"), None, 10, None))

    assert page["found"] == [0]
    assert page["titles"][0]["unused"] is None
