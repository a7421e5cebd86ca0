"""Which recording answers a request, what a new one replaces, and how headers and credentials count."""

import gc
import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.cassette.choice import CallsModel, Why, calls_no_model
from tapeway.core.cassette.credential_index import FoundKey
from tapeway.core.cassette.cursors import Take
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.correlation.index import CorrelationIndex
from tapeway.core.matching.key import key_on_route, request_key
from tapeway.core.matching.rules import Rules, meta_with_rules
from tapeway.core.model.cassette import CassetteHead, Recording, StoredCassette
from tapeway.core.model.control import Repeats
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction, Interaction
from tapeway.core.model.messages import Headers, Request, Response, ResponseHead

HEAD = CassetteHead("2026-01-01T00:00:00+00:00", "run")

if TYPE_CHECKING:
    from _typeshed import TraceFunction


def make_request(asked: str, route: str = "openai") -> Request:
    return Request(route, "GET", f"/{asked}")


def make_interaction(index: int, asked: str, body: str = "", route: str = "openai") -> Interaction:
    response = Response(ResponseHead(200), body.encode())
    return Interaction(index, make_request(asked, route), response)


def key(asked: str, route: str = "openai") -> bytes:
    return request_key(make_request(asked, route))


def make_cassette(
    *interactions: AnyInteraction, take: int = 1, calls_model: CallsModel = calls_no_model
) -> CassetteIndex:
    stored = StoredCassette(HEAD, interactions)
    return CassetteIndex("c", stored, take=take, calls_model=calls_model)


def record(cassette: CassetteIndex, asked: str, body: str, *, replaces: bool = True) -> Recording:
    interaction = make_interaction(0, asked, body)
    recording = cassette.make_recording(interaction, key(asked), cassette.take, replaces=replaces)
    cassette.add(recording, key(asked), cassette.take)
    return recording


def replayed(
    cassette: CassetteIndex, asked: str, repeats: Repeats, count: int, take: Take | None = None
) -> list[int | None]:
    take = take or cassette.take
    found = [cassette.choose(FoundKey(key(asked)), take, repeats) for _ in range(count)]
    return [None if isinstance(recording, Why) else recording.index for recording in found]


def bodies(cassette: CassetteIndex) -> list[str]:
    return [
        interaction.response.body.decode()
        for interaction in cassette
        if isinstance(interaction, Interaction)
    ]


REPEATED = (make_interaction(3, "a"), make_interaction(5, "b"), make_interaction(8, "a"))


@pytest.mark.parametrize(
    ("repeats", "expected"),
    [("last", [3, 8, 8, 8, 8]), ("miss", [3, 8, None, None, None]), ("cycle", [3, 8, 3, 8, 3])],
)
def test_repeats_come_in_order_and_then_as_the_policy_says(
    repeats: Repeats, expected: list[int | None]
) -> None:
    cassette = make_cassette(*REPEATED)

    assert replayed(cassette, "a", repeats, 5) == expected
    assert replayed(cassette, "b", repeats, 1) == [5]


@pytest.mark.parametrize("repeats", get_args(Repeats))
def test_a_request_that_is_not_recorded_has_no_cursor(repeats: Repeats) -> None:
    cassette = make_cassette(*REPEATED)

    assert replayed(cassette, "x", repeats, 3) == [None] * 3
    assert cassette.take.cursors == {}
    assert (key("x") in cassette, len(cassette.indexes(key("x")))) == (False, 0)
    assert (key("a") in cassette, len(cassette.indexes(key("a")))) == (True, 2)


def test_recordings_are_replayed_in_index_order_however_they_were_stored() -> None:
    cassette = make_cassette(*reversed(REPEATED))

    assert replayed(cassette, "a", "miss", 2) == [3, 8]
    assert [recording.index for recording in cassette] == [3, 5, 8]


def test_a_new_take_begins_at_the_beginning_with_nothing_used() -> None:
    cassette = make_cassette(*REPEATED)
    assert replayed(cassette, "a", "miss", 3) == [3, 8, None]
    assert cassette.unused() == [5]

    cassette.start_take(2)

    assert cassette.unused() == [3, 5, 8]
    assert replayed(cassette, "a", "miss", 3) == [3, 8, None]


def test_a_recording_gets_an_index_nobody_has_had() -> None:
    cassette = make_cassette(*REPEATED, ForeignInteraction(11, {}))

    assert record(cassette, "z", "").interaction.index == 12
    assert record(cassette, "a", "").interaction.index == 13
    assert record(cassette, "a", "").interaction.index == 14


def test_the_first_answer_of_a_take_replaces_all_earlier_ones_and_further_ones_follow() -> None:
    cassette = make_cassette(*REPEATED)

    assert record(cassette, "a", "new").supersedes == (3, 8)
    assert record(cassette, "a", "newer").supersedes == ()
    assert [recording.index for recording in cassette] == [9, 5, 10]

    cassette.start_take(2)

    assert record(cassette, "a", "newest").supersedes == (9, 10)
    assert [recording.index for recording in cassette] == [11, 5]


def test_a_recording_may_go_on_until_another_take_has_replaced_or_kept_it() -> None:
    cassette = make_cassette()
    take = cassette.take
    replaced, kept = [record(cassette, text, "").interaction.index for text in ("a", "b")]
    assert cassette.may_go_on(replaced, take)
    assert cassette.may_go_on(kept, take)

    cassette.start_take(take.number + 1)
    assert cassette.may_go_on(replaced, take)
    record(cassette, "a", "new")
    cassette.keep(kept, cassette.take)

    assert not cassette.may_go_on(replaced, take)
    assert not cassette.may_go_on(kept, take)
    assert cassette.may_go_on(kept, cassette.take)


def test_without_replacing_an_answer_is_appended() -> None:
    cassette = make_cassette(*REPEATED)

    assert record(cassette, "a", "new", replaces=False).supersedes == ()
    assert replayed(cassette, "a", "cycle", 3) == [8, 9, 3]


def test_nothing_changes_before_a_recording_is_durable() -> None:
    cassette = make_cassette(*REPEATED)

    cassette.make_recording(make_interaction(0, "a"), key("a"), cassette.take, replaces=True)

    assert [recording.index for recording in cassette] == [3, 5, 8]
    assert replayed(cassette, "a", "miss", 3) == [3, 8, None]


def test_after_a_recording_that_failed_the_next_replaces() -> None:
    cassette = make_cassette(*REPEATED)
    steps = [
        cassette.make_recording(make_interaction(0, "a"), key("a"), cassette.take, replaces=True)
        for _ in range(3)
    ]

    # The first could not be made durable; the others had been on their way with it.
    for step in steps[1:]:
        cassette.add(step, key("a"), cassette.take)

    assert [recording.index for recording in cassette] == [10, 5, 11]
    assert record(cassette, "a", "").supersedes == ()


def test_a_recording_of_an_ended_take_replaces_nothing_of_a_later_one() -> None:
    cassette = make_cassette(*REPEATED)
    before = cassette.take
    cassette.start_take(2)
    record(cassette, "a", "of take 2")

    late = cassette.make_recording(
        make_interaction(0, "a", "late"), key("a"), before, replaces=True
    )
    cassette.add(late, key("a"), before)

    assert late.supersedes == ()
    assert bodies(cassette) == ["of take 2", "", "late"]


def test_a_recording_counts_as_used_by_the_request_that_was_recorded() -> None:
    cassette = make_cassette()
    record(cassette, "a", "1", replaces=False)

    assert cassette.unused() == []
    assert replayed(cassette, "a", "miss", 1) == [None]
    assert replayed(cassette, "a", "last", 1) == [0]


def test_a_recording_of_an_ended_take_is_unused_in_the_next() -> None:
    cassette = make_cassette()
    before = cassette.take
    late = cassette.make_recording(make_interaction(0, "a"), key("a"), before, replaces=False)
    cassette.start_take(2)
    cassette.add(late, key("a"), before)

    assert cassette.unused() == [0]
    assert replayed(cassette, "a", "miss", 2) == [0, None]


@pytest.mark.parametrize(("repeats", "answers"), [("miss", False), ("last", True), ("first", True)])
def test_the_only_recording_of_a_key_answers_again_by_the_repeat_rule(
    repeats: Repeats, answers: bool
) -> None:
    cassette = make_cassette(make_interaction(3, "a"))
    assert cassette.next_in_order(key("a"), cassette.take, repeats, None, tuple) is cassette.get(3)
    cassette.take.use(key("a"), 3)

    again = cassette.next_in_order(key("a"), cassette.take, repeats, None, tuple)
    assert again is (cassette.get(3) if answers else None)


def test_where_the_upstream_can_be_asked_the_order_decides_for_the_caller_of_this_take() -> None:
    recorded = make_interaction(0, "a"), make_interaction(1, "b")
    cassette = make_cassette(*recorded, calls_model=lambda request: True)
    record(cassette, "b", "new", replaces=False)

    # An earlier take's answer whoever asks.
    assert cassette.next_in_order(
        key("a"), cassette.take, "last", lambda: b"other", tuple
    ) is cassette.get(0)
    assert cassette.next_in_order(key("b"), cassette.take, "last", lambda: b"other", tuple) is None
    assert cassette.next_in_order(
        key("b"), cassette.take, "last", lambda: b"", tuple
    ) is cassette.get(2)
    assert cassette.next_in_order(key("b"), cassette.take, "last", None, tuple) is cassette.get(2)


def test_the_only_recording_of_a_key_is_replaced() -> None:
    cassette = make_cassette(make_interaction(3, "a"), take=1)
    record(cassette, "a", "new")
    assert cassette.indexes(key("a")) == (4,)
    assert cassette.get(3) is None


def test_duplicates_are_recordings_of_the_same_request() -> None:
    assert make_cassette(*REPEATED).duplicates() == [[3, 8]]
    assert make_cassette().duplicates() == []


def test_recordings_that_a_header_tells_apart_are_no_duplicates() -> None:
    accepts = ("text/plain", "application/json", "text/plain", "text/html")
    held = [
        replace(exchange, request=replace(exchange.request, varied=("accept",)))
        for exchange in (recorded(index, accept) for index, accept in enumerate(accepts))
    ]
    rules = meta_with_rules({}, Rules(ignore_vary=("accept",)))

    assert make_cassette(*held).duplicates() == [[0, 2]]
    ignoring = StoredCassette(CassetteHead("", "run", rules), tuple(held))
    assert CassetteIndex("c", ignoring, take=1).duplicates() == [[0, 1, 2, 3]]


def test_everything_is_stored_or_what_was_touched_with_what_is_not_http() -> None:
    foreign = ForeignInteraction(4, {"kind": "tool"})
    cassette = make_cassette(*REPEATED, foreign)
    replayed(cassette, "a", "last", 1)

    def stored(*, touched_only: bool) -> list[int]:
        found = cassette.stored(touched_only=touched_only)
        assert found.head == HEAD
        return [interaction.index for interaction in found.interactions]

    assert stored(touched_only=False) == [3, 4, 5, 8]
    assert stored(touched_only=True) == [3, 4]


def test_an_interaction_that_is_not_http_is_kept_and_never_replayed() -> None:
    cassette = make_cassette(ForeignInteraction(0, {"kind": "tool"}))

    assert len(cassette) == 1
    assert isinstance(cassette.get(0), ForeignInteraction)
    assert (cassette.unused(), cassette.duplicates()) == ([], [])
    assert cassette.get(1) is None


def test_a_cassette_has_the_routes_of_its_recordings() -> None:
    cassette = make_cassette(make_interaction(0, "a", route="default"), *REPEATED)

    assert cassette.has_route("default")
    assert cassette.has_route("openai")
    assert not cassette.has_route("open")
    assert not cassette.has_route("")


def test_a_call_recorded_at_an_sdk_is_on_the_default_route() -> None:
    called = make_interaction(0, "a", route="")
    cassette = make_cassette(ForeignInteraction(0, {"kind": "tool"}, called))

    assert cassette.has_route("default")
    assert not cassette.has_route("openai")


def test_a_route_whose_last_recording_was_replaced_is_gone() -> None:
    cassette = make_cassette(make_interaction(0, "a", route="default"))
    moved = key_on_route(key("a"), "default")
    step = cassette.make_recording(make_interaction(0, "a"), moved, cassette.take, replaces=True)
    cassette.add(step, key("a"), cassette.take)

    assert (cassette.has_route("default"), cassette.has_route("openai")) == (False, True)


asked = st.sampled_from("abc")
steps = st.lists(
    st.tuples(st.just("next"), asked)
    | st.tuples(st.just("record"), asked)
    | st.tuples(st.just("append"), asked)
    | st.tuples(st.just("take"), st.just("")),
    max_size=30,
)


@given(steps, st.sampled_from(get_args(Repeats)))
def test_a_cassette_behaves_as_plain_lists_would(
    done: list[tuple[str, str]], repeats: Repeats
) -> None:
    cassette, lists, requests_counted = make_cassette(), dict[str, list[str]](), dict[str, int]()
    recorded: set[str] = set()
    for number, (step, what) in enumerate(done):
        held = lists.setdefault(what, [])
        match step:
            case "take":
                cassette.start_take(number + 2)
                requests_counted.clear()
                recorded.clear()
            case "next":
                found = cassette.choose(FoundKey(key(what)), cassette.take, repeats)
                expected = _expected(held, requests_counted.get(what, 0), repeats)
                answer = None if isinstance(found, Why) else found.response.body.decode()
                assert answer == expected
                requests_counted[what] = requests_counted.get(what, 0) + (expected is not None)
            case _:
                if step == "record" and what not in recorded:
                    held.clear()
                record(cassette, what, str(number), replaces=step == "record")
                held.append(str(number))
                recorded.add(what)
                requests_counted[what] = requests_counted.get(what, 0) + 1
    assert sorted(bodies(cassette)) == sorted(body for held in lists.values() for body in held)
    assert len({recording.index for recording in cassette}) == len(cassette)


def _expected(recorded: list[str], position: int, repeats: Repeats) -> str | None:
    if recorded and repeats == "first":
        return recorded[0]
    if position < len(recorded):
        return recorded[position]
    if not recorded or repeats == "miss":
        return None
    return recorded[-1] if repeats == "last" else recorded[position % len(recorded)]


def operations(work: Callable[[], object]) -> int:
    """How many instructions of the interpreter a piece of work takes."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> "TraceFunction":
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    # A collection in the middle of the work would run, and count, the callbacks of weak references
    # to what other tests left behind.
    gc.disable()
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
        gc.enable()
    return count


def test_finding_and_recording_cost_the_same_in_a_cassette_of_any_size() -> None:
    def costs(size: int) -> list[int]:
        cassette = make_cassette(*[make_interaction(i, f"r{i}") for i in range(size)])
        wanted, first, second = key("r5"), key("new"), key("r7")
        return [
            operations(lambda: cassette.choose(FoundKey(wanted), cassette.take, "last")),
            operations(lambda: cassette.choose(FoundKey(b"none\0"), cassette.take, "last")),
            operations(lambda: cassette.has_route("nowhere")),
            operations(lambda: _record_raw(cassette, first)),
            operations(lambda: _record_raw(cassette, second)),
        ]

    costs(10)  # Python 3.12 misses instructions the first time that it traces any
    assert costs(5_000) == costs(10)


def test_recording_the_same_request_anew_costs_no_more_each_time() -> None:
    cassette = make_cassette()
    wanted = key("polled")
    costs = [operations(lambda: _record_raw(cassette, wanted)) for _ in range(2_000)]

    # Its place among the others is found in a few steps more, the logarithm of their number.
    assert costs[-1] < 1.1 * costs[10]


def _record_raw(cassette: CassetteIndex, wanted: bytes) -> None:
    step = cassette.make_recording(REPEATED[0], wanted, cassette.take, replaces=True)
    cassette.add(step, wanted, cassette.take)


def request_accepting(accept: str, target: str = "/x") -> Request:
    return Request("r", "GET", target, ((b"accept", accept.encode()),))


def recorded(index: int, accept: str, target: str = "/x") -> Interaction:
    answer = Response(ResponseHead(200), b'{"id": "call_a1b2c3"}')
    return Interaction(index, request_accepting(accept, target), answer)


def header_cassette(*accepts: str) -> CassetteIndex:
    held = [recorded(index, accept) for index, accept in enumerate(accepts)]
    return CassetteIndex("c", StoredCassette(CassetteHead("", "run"), tuple(held)), take=1)


def replayed_for_headers(
    cassette: CassetteIndex, *accepts: str, repeats: Repeats = "last"
) -> list[int | None]:
    found = [
        cassette.choose(
            FoundKey(request_key(request_accepting(accept))),
            cassette.take,
            repeats,
            cassette.asked(request_accepting(accept)),
        )
        for accept in accepts
    ]
    return [None if isinstance(recording, Why) else recording.index for recording in found]


def test_the_nearest_unused_recording_comes_first() -> None:
    assert replayed_for_headers(header_cassette("a", "b", "a"), "b", "a", "a", "b") == [1, 0, 2, 1]


def test_an_unused_recording_comes_before_a_nearer_used_one() -> None:
    assert replayed_for_headers(header_cassette("a", "b"), "a", "a", "a") == [0, 1, 0]


def test_recordings_with_equal_headers_are_replayed_in_order() -> None:
    assert replayed_for_headers(header_cassette("a", "a", "a"), "b", "b", "b", "b") == [0, 1, 2, 2]


def test_used_up_recordings_miss_or_repeat() -> None:
    assert replayed_for_headers(header_cassette("a", "b"), "b", "b", "b", repeats="miss") == [
        1,
        0,
        None,
    ]
    assert replayed_for_headers(header_cassette("a", "b", "b"), *"bbabbb", repeats="cycle")[3:] == [
        1,
        2,
        1,
    ]


def test_each_caller_cycles_through_its_own_recordings() -> None:
    assert replayed_for_headers(
        header_cassette("a", "b", "a", "b"), *"bbbaaabba", repeats="cycle"
    ) == [
        *(1, 3, 0, 2, 0, 2),
        *(1, 3, 0),
    ]


def test_a_later_recording_with_other_headers_makes_headers_count() -> None:
    cassette = header_cassette("a", "a")
    assert replayed_for_headers(cassette, "b") == [0]
    cassette.add(Recording(recorded(2, "b")), request_key(request_accepting("b")), cassette.take)
    cassette.start_take(2)

    assert replayed_for_headers(cassette, "b", "a") == [2, 0]


def test_headers_stop_counting_once_the_recording_that_differed_is_replaced() -> None:
    cassette = header_cassette("a", "a", "b")
    assert replayed_for_headers(cassette, "b") == [2]
    cassette.add(
        Recording(recorded(3, "a"), (2,)), request_key(request_accepting("a")), cassette.take
    )
    cassette.start_take(2)

    assert replayed_for_headers(cassette, "b", "b") == [0, 1]


def test_new_rules_reset_the_correlation_index() -> None:
    cassette = header_cassette("a")
    cassette.correlation = CorrelationIndex(cassette.snapshot(), cassette.rules)

    cassette.apply_rules(Rules(ignore=("query.ts",)))

    assert cassette.correlation is None


def test_a_recording_on_its_way_is_found_under_a_rule_added_meanwhile() -> None:
    cassette = header_cassette()
    request = request_accepting("a", "/x?ts=1")
    take, key = cassette.take, request_key(request)
    cassette.apply_rules(Rules(ignore=("query.ts",)))
    cassette.add(Recording(recorded(0, "a", "/x?ts=1")), key, take)
    cassette.start_take(2)

    other = request_accepting("a", "/x?ts=2")
    assert replay(cassette, other) is not None


def replay(
    cassette: CassetteIndex, request: Request, *, can_ask: bool = False
) -> Interaction | None:
    asked = cassette.asked(request)
    found = cassette.find(asked, (request.route,))
    if found is None:
        return None
    chosen = cassette.choose(found, cassette.take, "last", asked, can_ask=can_ask)
    return None if isinstance(chosen, Why) else chosen


RANGE: Headers = ((b"range", b"bytes=0-9"),)
CONDITION: Headers = ((b"if-none-match", b'"1"'),)


@pytest.mark.parametrize(
    ("status", "recorded", "fields", "answers"),
    [
        (206, RANGE, (), False),
        (206, RANGE, ((b"Range", b"bytes=0-9"),), True),
        (206, RANGE, ((b"range", b"bytes=10-19"),), False),
        (206, (), (), True),
        (416, RANGE, (), False),
        (416, RANGE, RANGE, True),
        (304, CONDITION, (), False),
        (304, CONDITION, ((b"If-None-Match", b'"2"'),), True),
        (304, CONDITION, ((b"if-modified-since", b"Sun, 22 Nov 2026 10:00:00 GMT"),), True),
        (304, CONDITION, RANGE, False),
        (304, (), (), True),
        (200, CONDITION, (), True),
        (404, CONDITION, (), True),
    ],
)
def test_a_part_or_not_modified_answers_only_a_request_that_asks_for_such(
    status: int, recorded: Headers, fields: Headers, answers: bool
) -> None:
    # With this rule all these requests have one key.
    head = replace(HEAD, meta=meta_with_rules({}, Rules(ignore=("headers.range",))))
    held = Interaction(0, Request("r", "GET", "/file", recorded), Response(ResponseHead(status)))
    cassette = CassetteIndex("c", StoredCassette(head, (held,)), take=1)

    found = replay(cassette, Request("r", "GET", "/file", fields))

    assert (found is not None) == answers


class _Counted(set[int]):
    """A set that must not be gone through."""

    def _refuse(self, *_: object) -> "_Counted":
        raise AssertionError("it was gone through")

    __iter__ = __and__ = __rand__ = __or__ = __sub__ = __rsub__ = _refuse  # type: ignore[assignment]


def test_counting_what_is_unused_goes_through_nothing() -> None:
    cassette = make_cassette(*[make_interaction(number, "a") for number in range(10)])
    replayed(cassette, "a", "last", 4)
    cassette.take.used = _Counted(cassette.take.used)
    cassette.take.touched = _Counted(cassette.take.touched)

    assert cassette.unused_count() == 6


STEPS = st.sampled_from(["a", "b", "record", "slot", "end slot", "rules", "take", "renumber"])


@given(st.lists(STEPS, max_size=12))
def test_the_number_of_unused_recordings_is_that_of_the_list(steps: list[str]) -> None:
    cassette = make_cassette(*REPEATED)
    for number, step in enumerate(steps, 2):
        match step:
            case "a" | "b":
                replayed(cassette, step, "last", 1)
            case "record":
                record(cassette, "a", str(number))
            case "slot":
                replayed(cassette, "a", "last", 1, cassette.running(number))
            case "end slot":
                cassette.end_slot_takes(())
            case "rules" | "renumber":
                cassette.apply_rules(Rules(ignore=("/query/x",)), saved=step == "renumber")
            case _:
                cassette.start_take(number)

        assert cassette.unused_count() == len(cassette.unused())
