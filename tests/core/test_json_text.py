"""JSON that every reader understands alike, and the same value where it is written otherwise."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapeway.core import json_text
from tapeway.core.json_text import (
    MAX_DEPTH,
    Json,
    NotJson,
    check_json,
    dump,
    is_text_written_alike,
    is_written_alike,
    json_object,
    parse,
    parse_as_dumped,
    python_bytes,
    python_text,
    python_value,
    same_json,
)
from tests.support.memory import measured_memory

text = st.text(st.characters(exclude_categories=["Cs"]))
scalars: st.SearchStrategy[Json] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**40), 10**40),
    st.floats(allow_nan=False, allow_infinity=False),
    text,
)
values: st.SearchStrategy[Json] = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(text, inner, max_size=4)),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("1.0", 1),
        ("1e3", 1000),
        ("-0.0", 0),
        ("0.5", 0.5),
        ("123456789012345678901234567890.0", 123456789012345678901234567890),
        ("1e-999999999", 0.0),
        ("0e999999999", 0),
        ("1e-9999999999999999999", 0.0),
    ],
)
def test_a_number_means_its_value_at_no_great_cost(source: str, value: Json) -> None:
    found = parse(source, by_value=True)

    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ('{"a": 1, "a": 2}', "a key occurs twice"),
        ('[{"deep": {"a": 1, "\\u0061": 1}}]', "a key occurs twice"),
        ("NaN", "NaN is not JSON"),
        ("[Infinity]", "Infinity is not JSON"),
        ("-Infinity", "-Infinity is not JSON"),
        ("1e400", "does not fit"),
        ('"\\ud800"', "half a surrogate pair"),
        ('{"\\udc00": 1}', "half a surrogate pair"),
        ('"\ud800"', "half a surrogate pair"),
        ("1" * 5000, "more digits than can be read"),
        ('{"a": 1,}', "line 1 column [89]"),  # Python 3.13 points at the comma itself
        ('{\n"a" 1}', "line 2 column 5"),
        ("", "line 1 column 1"),
        ("\ufeff{}", "line 1 column 1"),
        ("'a'", "line 1 column 1"),
        ('"a\nb"', "line 1 column 3"),
        ("01", "line 1 column 2"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "nested deeper"),
        ('{"a":' * 50_000, "nested deeper"),
    ],
)
def test_what_readers_would_disagree_on_is_not_json(source: str, reason: str) -> None:
    with pytest.raises(NotJson, match=reason):
        parse(source)


def test_bytes_that_are_not_utf8_are_not_json() -> None:
    with pytest.raises(NotJson, match="not UTF-8 at byte 2"):
        parse(b'"a\xff"')


@pytest.mark.parametrize("depth", [1, MAX_DEPTH])
def test_a_value_as_deep_as_allowed_is_read(depth: int) -> None:
    assert dump(parse("[" * depth + "]" * depth)) == b"[" * depth + b"]" * depth


def test_brackets_in_strings_are_no_depth() -> None:
    value = "[{" * 400 + '"\\'

    assert parse(dump([value])) == [value]


def test_an_unclosed_string_full_of_quotes_is_refused_at_no_great_cost() -> None:
    with pytest.raises(NotJson):
        parse("[" * (MAX_DEPTH + 1) + '"' + '\\"' * 500_000)


def test_many_shallow_brackets_are_no_depth() -> None:
    assert parse(b"[" + b",".join([b"[]"] * 1000) + b"]") == [[]] * 1000


@pytest.mark.parametrize("number", [2**53 + 1, 2**64, -(2**70), 10**300])
def test_integers_stay_exact(number: int) -> None:
    assert parse(dump({"n": number})) == {"n": number}


def test_a_float_beside_a_huge_integer_stays_what_it_is() -> None:
    assert parse(dump([2**70, 1.5, 1e22])) == [2**70, 1.5, 1e22]


@given(values)
def test_what_was_dumped_is_read_again(value: Json) -> None:
    for indent in (False, True):
        assert same_json(parse(dump(value, indent=indent)), value)


@given(values)
def test_by_value_is_the_same_for_every_way_to_write_it(value: Json) -> None:
    ways = [dump(value), dump(value, indent=True), json.dumps(value, ensure_ascii=True).encode()]

    assert len({dump(parse(way, by_value=True)) for way in ways}) == 1


@given(st.integers(-(10**30), 10**30), st.integers(0, 20))
def test_an_integer_is_itself_however_it_is_written(number: int, zeros: int) -> None:
    ways = [f"{number}", f"{number}.{'0' * zeros}0", f"{number}e0", f"{number * 10}E-1"]

    assert [parse(way, by_value=True) for way in ways] == [number] * 4


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        ({"a": 1, "b": [2]}, {"b": [2], "a": 1}, True),
        (1, 1.0, False),
        (1, True, False),
        (0, False, False),
        ([1, 2], [2, 1], False),
        ({"a": None}, {}, False),
        ("é", "e\u0301", False),
    ],
)
def test_same_tells_types_apart_and_not_orders_of_keys(
    left: Json, right: Json, equal: bool
) -> None:
    assert same_json(left, right) is equal


DEEPEST = "[" * MAX_DEPTH + "1" + "]" * MAX_DEPTH


@pytest.mark.parametrize(
    "text", ['{"a": [1, -1.5, null, true, "\\ud83c\\udfbc"], "": {}}', "1", DEEPEST]
)
def test_what_was_read_may_be_written(text: str) -> None:
    check_json(parse(text))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (float("nan"), "nan is not JSON"),
        ([float("inf")], "inf is not JSON"),
        ({"a": "\ud800"}, "half a surrogate pair"),
        ({"\udfff": 1}, "half a surrogate pair"),
        ({1: 2}, "a name in an object is a int"),
        ((1,), "a tuple is not JSON"),
        ([b"x"], "a bytes is not JSON"),
        (10**5000, "more digits"),
        ([parse(DEEPEST)], "nested deeper than 200"),
    ],
    ids=lambda case: case if isinstance(case, str) else type(case).__name__,
)
def test_what_would_not_be_read_again_as_it_is_is_named(value: object, said: str) -> None:
    with pytest.raises(NotJson, match=said):
        check_json(value)


@pytest.mark.parametrize("size", range(1, 12))
@given(st.text(alphabet='[]{}"\\,a1 ', max_size=40))
def test_the_depth_of_a_text_is_the_same_in_slices_of_any_size(size: int, source: str) -> None:
    def read() -> object:
        try:
            return parse(source)
        except NotJson as refused:
            return str(refused)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_text, "MAX_DEPTH", 3)
        whole = read()
        patch.setattr(json_text, "SLICE", size)
        assert read() == whole


def test_a_large_text_is_searched_and_read_in_steps_between_which_other_threads_get_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = json.dumps({"input": list(range(2000)), "said": "\U0001f600" * 2000}) + " " * 1000
    monkeypatch.setattr(json_text, "SLICE", 1000)
    integers: list[str] = []

    def counted(text: str) -> int:
        integers.append(text)
        return int(text)

    # Called for each integer of a large text alone: other threads get turns between these calls.
    monkeypatch.setattr(json_text, "_integer", counted)

    assert parse(source) == json.loads(source)
    assert len(integers) == 2000
    with pytest.raises(NotJson, match="half a surrogate pair"):
        parse(source.replace("\\ude00", "", 1))


@pytest.mark.parametrize("before", range(12))
def test_a_surrogate_between_two_slices_is_found(
    before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_text, "SLICE", 10)

    with pytest.raises(NotJson, match="half a surrogate pair"):
        parse('"' + "a" * before + '\\ud800"')


@given(values, st.booleans(), st.sampled_from([None, "  "]), st.booleans())
def test_a_large_value_is_written_step_by_step_as_a_small_one_is_at_once(
    value: Json, ascii_only: bool, indent: str | None, sort_keys: bool
) -> None:
    at_once = python_text(value, ascii_only=ascii_only, indent=indent, sort_keys=sort_keys)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_text, "MANY_VALUES", 0)
        patch.setattr(json_text, "SLICE", 0)
        steps = python_text(value, ascii_only=ascii_only, indent=indent, sort_keys=sort_keys)
        assert steps == at_once
        assert python_value(steps) == json.loads(at_once)


@pytest.mark.parametrize(
    ("value", "large"),
    [
        ({"input": [0.5] * 30_000}, True),
        ({"messages": [{"n": [1, 2, 3]}] * 6_000}, True),
        ({"messages": [{"n": [1, 2, 3]}] * 40, "text": "x" * 100_000}, False),
    ],
)
def test_a_value_is_large_by_the_number_of_values_in_it(value: Json, large: bool) -> None:
    assert (len(list(json_text.json_pieces(value))) > 1) == large


@pytest.mark.parametrize("indent", [False, True])
def test_a_number_is_written_alike_beside_an_integer_of_any_size(indent: bool) -> None:
    small: dict[str, Json] = {
        "a": [1e-7, 1e16, -0.0, 1.5, True, None, "é\n"],
        "b": [],
        "c": {"d": [{}]},
    }
    large: Json = {**small, "e": 2**70}

    end = b"\n}" if indent else b"}"
    added = b',\n  "e": %d' if indent else b',"e":%d'
    assert (
        dump(large, indent=indent) == dump(small, indent=indent)[: -len(end)] + added % 2**70 + end
    )


def test_names_that_are_no_texts_are_written_as_python_writes_them() -> None:
    value: Any = {"a": [{1: {None: "é"}, 2.5: [], False: 2**70}]}

    assert dump(value) == '{"a":[{"1":{"null":"é"},"2.5":[],"false":%d}]}'.encode() % 2**70
    with pytest.raises(TypeError):
        dump({"a": {(1, 2): 1}})  # type: ignore[dict-item]


@given(values, st.booleans(), st.sampled_from([1, 3, 20, 20_000]))
@example([1e-7, 2**70], False, 1)
@example({"a": [2**70, {}], "b": {"c": [[], 1e16]}}, True, 1)
def test_the_pieces_of_a_text_are_that_text(value: Json, indent: bool, many: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_text, "MANY_VALUES", many)
        patch.setattr(json_text, "SLICE", many)
        pieces = list(json_text.json_pieces(value, indent=indent))

    assert b"".join(pieces) == dump(value, indent=indent)
    assert many < 20_000 or len(pieces) == 1


@pytest.mark.parametrize("indent", [False, True])
def test_no_piece_of_a_large_text_is_large(indent: bool) -> None:
    value: Json = {"of": {"numbers": [0.5] * 300_000, "text": "é" * 2_000_000, "lists": [[1]] * 99}}

    pieces = list(json_text.json_pieces(value, indent=indent))

    assert b"".join(pieces) == dump(value, indent=indent)
    assert max(map(len, pieces)) < 1024 * 1024


@given(value=values, indent=st.booleans())
def test_what_was_dumped_is_read_by_orjson_only_where_it_reads_the_same(
    value: Json, indent: bool
) -> None:
    source = dump({"value": value}, indent=indent)

    found = parse_as_dumped(source)
    assert found is None or repr(found) == repr(parse(source))
    # An integer of more than 64 bits is not its business.
    assert found is not None or any(word.isdigit() for word in source.decode())


@pytest.mark.parametrize(
    "source",
    [
        b'{"a": 1, "a": 2}',
        b'[{"deep": {"a": 1, "a": 1}}]',
        b"[18446744073709551616]",
        b"[-9223372036854775809]",
        b"[1.0e300, 18446744073709551616]",
        b"[-0]",
        b"[1e400]",
        b"[NaN]",
        b'["\\ud800"]',
        b'["\xff"]',
        b'["\\u0041"]',
        b"[1.50]",
        b"[1",
        b"",
        b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1),
        b'["' + b"x" * (1 << 20) + b'"]',
    ],
)
def test_any_other_text_is_left_to_the_exact_reader(source: bytes) -> None:
    assert parse_as_dumped(source) is None


SHORT = st.dictionaries(
    st.text("ab", max_size=2), st.integers(0, 9) | st.text(' :"x\n', max_size=9)
)
LONG_TEXT = st.tuples(
    st.sampled_from(["x y", 'say "a": 1, ', "line\n", "\u00e9 "]), st.integers(300, 600)
).map(lambda text_and_count: text_and_count[0] * text_and_count[1])


@given(before=SHORT, text=LONG_TEXT, behind=SHORT, indent=st.booleans(), twice=st.booleans())
def test_a_long_string_is_compared_as_a_whole_and_all_around_it_exactly(
    before: Json, text: str, behind: Json, indent: bool, twice: bool
) -> None:
    begins = text[:100] if twice else ""
    value: dict[str, Json] = {"before": before, "like": begins, "text": text, "behind": behind}
    source = dump(value, indent=indent)
    parts = ((b'"before":', b'"before": 1, "before":'), (b'"behind":', b'"n": -0, "behind":'))

    assert parse_as_dumped(source) == value
    for part, other in parts:
        assert parse_as_dumped(source.replace(part, other)) is None
    # A blank more within the string is no blank between two values: it is read as it is.
    changed = source.replace(b'"text": "', b'"text": " ').replace(b'"text":"', b'"text":" ')
    assert parse_as_dumped(changed) == {**value, "text": f" {text}"}


def test_a_text_as_deep_as_allowed_is_read_by_orjson_too() -> None:
    source = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH

    assert parse_as_dumped(source) == parse(source)


@given(
    value=values,
    layout=st.sampled_from([(None, ",", ":"), ("  ", ",", ": "), (None, ", ", ": ")]),
    sort_keys=st.booleans(),
)
@example(
    value={"a,\n  b": [", ", "\n ", " :", [], {}, [{"c": 1}, 2]]},
    layout=(None, ", ", ": "),
    sort_keys=False,
)
@example(
    value={"a, b": [", ,\n " * 300, [], {"c": {}, "d": [1, ["e, "]]}], "f": None},
    layout=(None, ", ", ": "),
    sort_keys=False,
)
def test_orjson_writes_what_python_writes_or_leaves_it(
    value: Json, layout: tuple[str | None, str, str], sort_keys: bool
) -> None:
    indent, *separators = layout
    written = python_text(
        value, indent=indent, separators=(separators[0], separators[1]), sort_keys=sort_keys
    )
    indented, blanks = indent is not None, separators[0] == ", "

    text = python_bytes(value, indent=indented, blanks=blanks, sort_keys=sort_keys)
    assert text in (None, written.encode())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": [1.5, -0.0, 0.0001, 123456.25, 2**63, "\x1b\x7f\u2028é"]}, True),
        ([0.00001], False),
        ([1.5e-7], False),
        ([1e16], False),
        ([float("nan")], False),
        ([float("inf")], False),
        ([2**64], False),
        ([0] * 20_001, False),
    ],
)
def test_only_a_number_that_orjson_writes_otherwise_and_a_large_value_are_left(
    value: Json, text: bool
) -> None:
    written = python_bytes(value)

    assert (written is not None) == text
    assert written is None or written.decode() == python_text(value)


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(1e16)
@example(9999999999999998.0)
@example(1e-4)
@example(9.999999999999999e-5)
@example(1e-5)
@example(1e-7)
@example(-1.5e300)
def test_a_number_that_python_writes_otherwise_is_seen_in_the_text_of_orjson(number: float) -> None:
    text = orjson.dumps([number])

    assert is_written_alike([number]) or not is_text_written_alike(text)
    assert text.decode() == json.dumps([number]) or not is_text_written_alike(text)


@pytest.mark.parametrize(
    ("text", "alike"),
    [
        (b'["be", 0.5, 10, 0.0001]', True),
        (b"[0" + b",0" * 20_000 + b"]", False),
        (b'["3e"]', False),
    ],
)
def test_nearly_every_text_shows_that_it_is_written_alike(text: bytes, alike: bool) -> None:
    assert is_text_written_alike(text) == alike


@pytest.mark.parametrize("blanks", [False, True])
def test_a_text_takes_the_memory_of_its_length(blanks: bool) -> None:
    python_bytes({"a": "b"}, blanks=blanks)
    with measured_memory() as memory:
        kept = [python_bytes(number, blanks=blanks) for number in range(1000)]

    assert kept[7] == b"7"
    assert memory.held < 1000 * 100


def test_nearly_all_values_are_written_by_orjson_on_one_line_too() -> None:
    value: Json = {"a": ["b, c: d", 1.5, {}]}
    assert python_bytes(value, blanks=True) == b'{"a": ["b, c: d", 1.5, {}]}'


def test_what_is_no_object_is_none() -> None:
    assert json_object(b"[]") is None
    assert json_object(b"{") is None
    assert json_object(b'{"a": "\xff"}') is None
    assert json_object(b'{"a": 1}') == {"a": 1}
