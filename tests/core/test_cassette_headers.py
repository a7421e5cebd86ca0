"""Recordings of one request that differ in their headers, and rules that come later."""

from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.correlation.index import Identifiers
from tapeway.core.matching.key import request_key
from tapeway.core.matching.rules import Rules
from tapeway.core.model.cassette import CassetteHead, Recording, StoredCassette
from tapeway.core.model.control import Repeats
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseChunk, ResponseHead


def asked(accept: str, target: str = "/x") -> Request:
    return Request("r", "GET", target, ((b"accept", accept.encode()),))


def recorded(index: int, accept: str, target: str = "/x") -> Interaction:
    answer = Response(ResponseHead(200), (ResponseChunk(b'{"id": "call_a1b2c3"}'),))
    return Interaction(index, asked(accept, target), answer)


def tape(*accepts: str) -> CassetteIndex:
    held = [recorded(index, accept) for index, accept in enumerate(accepts)]
    return CassetteIndex("c", StoredCassette(CassetteHead("", "run"), tuple(held)), take=1)


def served(cassette: CassetteIndex, *accepts: str, repeats: Repeats = "last") -> list[int | None]:
    found = [
        cassette.next(request_key(asked(accept)), repeats, asked=asked(accept))
        for accept in accepts
    ]
    return [None if each is None else each.index for each in found]


def test_the_nearest_that_is_still_unused_comes_first() -> None:
    assert served(tape("a", "b", "a"), "b", "a", "a", "b") == [1, 0, 2, 1]


def test_an_unused_one_comes_before_a_nearer_one_that_is_used() -> None:
    assert served(tape("a", "b"), "a", "a", "a") == [0, 1, 0]


def test_equal_headers_are_served_as_recorded() -> None:
    assert served(tape("a", "a", "a"), "b", "b", "b", "b") == [0, 1, 2, 2]


def test_used_up_ones_miss_or_come_round_again() -> None:
    assert served(tape("a", "b"), "b", "b", "b", repeats="miss") == [1, 0, None]
    assert served(tape("a", "b", "b"), *"bbabbb", repeats="cycle")[3:] == [1, 2, 1]


def test_each_caller_goes_round_its_own_recordings() -> None:
    assert served(tape("a", "b", "a", "b"), *"bbbaaabba", repeats="cycle") == [
        *(1, 3, 0, 2, 0, 2),
        *(1, 3, 0),
    ]


def test_a_recording_with_other_headers_that_comes_later_is_told_apart() -> None:
    cassette = tape("a", "a")
    assert served(cassette, "b") == [0]
    cassette.add(Recording(recorded(2, "b")), request_key(asked("b")), cassette.take)
    cassette.start_take(2)

    assert served(cassette, "b", "a") == [2, 0]


def test_what_made_recordings_differ_can_go_again() -> None:
    cassette = tape("a", "a", "b")
    assert served(cassette, "b") == [2]
    cassette.add(Recording(recorded(3, "a"), (2,)), request_key(asked("a")), cassette.take)
    cassette.start_take(2)

    assert served(cassette, "b", "b") == [0, 1]


def test_identifiers_are_read_anew_under_new_rules() -> None:
    cassette = tape("a")
    cassette.identifiers = Identifiers(cassette, cassette.rules)

    cassette.with_rules(Rules(ignore=("query.ts",)))

    assert cassette.identifiers is None


def test_what_is_on_its_way_when_a_rule_comes_is_found_under_it() -> None:
    cassette = tape()
    request = asked("a", "/x?ts=1")
    take, key = cassette.take, request_key(request)
    cassette.with_rules(Rules(ignore=("query.ts",)))
    cassette.add(Recording(recorded(0, "a", "/x?ts=1")), key, take)
    cassette.start_take(2)

    other = asked("a", "/x?ts=2")
    assert cassette.next(request_key(other, cassette.rules), "last", asked=other) is not None
