"""A recording in a file is an interaction like any other, and is read when it is looked at."""

import copy
from dataclasses import replace

import pytest

from tapeway.core.model.interaction import Interaction, large_bodies, replace_large_bodies
from tapeway.core.model.lazy_interaction import LazyInteraction
from tapeway.core.model.messages import Request, Response, ResponseHead

WHOLE = Interaction(
    7,
    Request("r", "POST", "/v1/x", body=b"{}"),
    Response(ResponseHead(200), b"answer"),
    match_key="k",
    latency_ms=1.5,
    tags=("a",),
)


REQUEST = ("request",)
REST = ("response", "match_key", "latency_ms", "usage", "tags", "metadata")


class File:
    """A file with one recording; it has each one that is read keep its content if told to."""

    def __init__(self, *, keeps: bool = True) -> None:
        self.keeps = keeps
        self.reads = 0

    def read(self, item: LazyInteraction, name: str) -> object:
        self.reads += 1
        content = {field: getattr(WHOLE, field) for field in REQUEST if (field == name)} or {
            field: getattr(WHOLE, field) for field in REST
        }
        if self.keeps:
            item.keep(content)
        return content[name]

    def load(self, index: int) -> Interaction:
        assert index == WHOLE.index
        self.reads += 1
        return WHOLE

    def may_hold_credentials(self, index: int) -> bool:
        return False

    def has_conditions(self, index: int) -> bool:
        return False


def test_each_part_is_read_once_when_it_is_first_looked_at() -> None:
    file = File()
    filed = LazyInteraction.at(7, file)

    assert (filed.index, filed.failure, filed.stored_keys) == (7, None, ())
    assert large_bodies(filed) == ()
    assert replace_large_bodies(filed, lambda _: pytest.fail("it has none")) is filed
    assert file.reads == 0
    assert filed.request is WHOLE.request
    assert filed.response is WHOLE.response
    assert (filed.match_key, filed.latency_ms, filed.usage) == ("k", 1.5, None)
    assert file.reads == 2, "the request, and the rest"


def test_what_was_forgotten_is_read_again() -> None:
    file = File()
    filed = LazyInteraction.at(7, file)

    for reads in (1, 2, 3):
        assert filed.response.body == b"answer"
        assert file.reads == reads
        filed.forget()
        filed.forget()


def test_it_may_be_forgotten_while_it_is_read() -> None:
    filed = LazyInteraction.at(7, File(keeps=False))

    assert filed.request is WHOLE.request
    assert filed.tags == ("a",)


def test_it_is_loaded_as_a_whole_by_one_reading_that_nothing_keeps() -> None:
    file = File()
    filed = LazyInteraction.at(7, file)

    assert filed.load() is WHOLE
    assert file.reads == 1
    assert filed.request is WHOLE.request
    assert file.reads == 2


def test_it_equals_the_same_in_memory() -> None:
    filed = LazyInteraction.at(7, File())

    assert filed == WHOLE
    assert WHOLE == filed  # noqa: SIM300 - the other way round
    assert filed == LazyInteraction.at(7, File())
    assert filed != replace(WHOLE, latency_ms=2.0)
    assert filed != LazyInteraction.at(8, File())
    assert filed != "else"


def test_a_changed_or_copied_one_is_in_memory() -> None:
    filed = LazyInteraction.at(7, File())

    for made in (replace(filed, index=7), copy.copy(filed), copy.deepcopy(filed)):
        assert type(made) is Interaction
        assert made == WHOLE
    assert replace(filed, index=3) == replace(WHOLE, index=3)


def test_a_wrong_name_is_no_field() -> None:
    with pytest.raises(AttributeError, match="no reqeust"):
        LazyInteraction.at(7, File()).reqeust  # noqa: B018 - raises
