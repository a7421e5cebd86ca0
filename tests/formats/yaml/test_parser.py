"""YAML as people and other tools write it, read as JSON; and what is refused."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.json_text import MAX_DEPTH, Json
from tapeway.formats.errors import FormatFault
from tapeway.formats.yaml import parser as yaml_parser
from tapeway.formats.yaml.parser import Tags, line_of, parse

DATA = Path(__file__).parents[1] / "data"

BOMB = b"a: &a [x, x, x]\nb: &b [*a, *a, *a]\nc: &c [*b, *b, *b]\n"

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(-1e9, 1e9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@pytest.fixture(params=["libyaml", "python"], autouse=True)
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both of PyYAML's parsers: the compiled one is not everywhere."""
    if request.param == "python":
        monkeypatch.setattr(yaml_parser, "PARSER", yaml.BaseLoader)
    elif not yaml.__with_libyaml__:
        pytest.skip("PyYAML was built without libyaml")


@pytest.mark.parametrize("name", ["agenttape_chat", "agenttape_async"])
def test_a_yaml_cassette_of_agenttape_equals_its_json(name: str) -> None:
    found = parse((DATA / f"{name}.yaml").read_bytes())

    assert json.dumps(found) == json.dumps(json.loads((DATA / f"{name}.json").read_bytes()))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("# nothing\n", None),
        ("a: 1\n", {"a": 1}),
        ("\ufeffa: b\r\nc: d\r\n", {"a": "b", "c": "d"}),
        ("%YAML 1.1\n---\na: b\n...\n", {"a": "b"}),
        ("a:\n- 1\n- [2, {b: c}]\n", {"a": [1, [2, {"b": "c"}]]}),
        ('{"a": [1.0, "no"], b: no}', {"a": [1.0, "no"], "b": "no"}),
        ("a: one\n  two\n", {"a": "one two"}),
        ("a: 'it''s\n\n  two'\n", {"a": "it's\ntwo"}),
        ('a: "\\x41\\u00e9\\U0001F600\\\n  b"\n', {"a": "Aé\U0001f600b"}),
        ("a: |+\n  x\n\nb: >-\n  y\n  z\n", {"a": "x\n\n", "b": "y z"}),
        ("a: |2\n    x\n", {"a": "  x\n"}),
        ("1: a\ntrue: b\nnull: c\n2026-11-22: d\n", dict(zip(["1", "true", "null", "2026-11-22"], "abcd", strict=True))),
        ("'': 1\n? b\n: 2\n<<: 3\n", {"": 1, "b": 2, "<<": 3}),
        ("a: 'true'\nb: |-\n  1\nc:\n", {"a": "true", "b": "1", "c": None}),
        ("a: &anchor b\n", {"a": "b"}),
    ],
)  # fmt: skip
def test_yaml_of_people_and_other_tools_is_read(text: str, value: Json) -> None:
    assert json.dumps(parse(text.encode())) == json.dumps(value)


@pytest.mark.parametrize("length", range(1, 9))
def test_a_large_text_is_read_as_a_small_one(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'a: b\r\nc: "d\x7fé\U0001f600\r\ne\x85\rf"\r\n'.encode()
    whole = parse(text)
    slices = []

    class Pattern:
        def findall(self, part: str) -> list[str]:
            slices.append(part)
            return misread.findall(part)

        def sub(self, by: Any, part: str) -> str:
            return misread.sub(by, part)

    # The pattern is the only witness of how much text is searched at once.
    misread = yaml_parser._MISREAD
    monkeypatch.setattr(yaml_parser, "_MISREAD", Pattern())
    monkeypatch.setattr(yaml_parser, "SLICE", length)

    assert parse(text) == whole
    assert "".join(slices) == text.decode()
    assert max(map(len, slices)) <= length + 2
    with pytest.raises(FormatFault, match=f"not UTF-8 at byte {len(text) + 3}$"):
        parse(text + b"g: \xc3")


@pytest.mark.parametrize("control", ["\0", "\x1b", "\x7f", "\x85", "\r", "\u2028", "\ufeff"])
def test_a_character_agenttape_writes_unescaped_comes_back(control: str) -> None:
    text = f"a: 'x{control}y'\nb: |-\n  x{control}y\n  z\nc{control}: 1\n"

    assert parse(text.encode()) == {"a": f"x{control}y", "b": f"x{control}y\nz", f"c{control}": 1}


@pytest.mark.parametrize("length", [4, 1000])
def test_a_substitute_is_a_character_the_text_does_not_use(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yaml_parser, "SLICE", length)
    assert parse("a: '\x1b\U000f0000'\n".encode()) == {"a": "\x1b\U000f0000"}

    everything = "".join(map(chr, yaml_parser.PRIVATE))
    with pytest.raises(FormatFault, match="control character") as refused:
        parse(f"a: {everything}\nb: '\x1b'\n".encode())
    assert refused.value.line == 2


@given(JSON)
def test_what_pyyaml_writes_is_read(value: Any) -> None:
    text = yaml.safe_dump(_unlike_agenttape(value), allow_unicode=True)

    assert json.dumps(parse(text.encode()), sort_keys=True) == json.dumps(
        _unlike_agenttape(value), sort_keys=True
    )


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (b"a: 1\nb: [1,\n", 3, "this is not YAML"),
        (b"a: 1\n\tb: 2\n", 2, "this is not YAML"),
        (b"a: 1\nb: 'x\n", 3, "end of stream"),
        (b"a: 1\n b: 2\n", 2, "mapping values are not allowed"),
        (b"a: 1\nb: \xff\n", 2, "not UTF-8 at byte 8"),
        (b"a:\n  b: 1\n  'b': 2\n", 3, "a.b: a key occurs twice"),
        (b"a:\n- b: 1\n  b: 2\n", 3, r"a\[0\].b: a key occurs twice"),
        (b"a: 1\nb: *a\n", 2, "an alias is not read"),
        (BOMB, 2, "an alias is not read"),
        (
            b"a: 1\nb: !!python/object/apply:os.system ['true']\n",
            2,
            "the tag !!python/object/apply:os.system is not read",
        ),
        (b"a: 1\nb: !!binary AAAA\n", 2, "the tag !!binary is not read"),
        (b"a: 1\nb: !x {}\n", 2, "the tag !x is not read"),
        (b"a: 1\n---\nb: 2\n", 2, "a second document"),
        (b"[a, b]: 1\n", 1, "a key must be text"),
        (b"a:\n- 1\n- 1e999\n", 3, r"a\[1\]: 1e999 does not fit"),
        (b"a:\n  b: 1e999\n", 2, "a.b: 1e999 does not fit"),
        (b"a: b\n" + b"[" * 100_000, 2, "this is not YAML"),
        (b"[" * 100_000, 1, "nested deeper than 200"),
        (b"{a: " * 100_000, 1, "nested deeper than 200"),
        (b"- " * 100_000, 1, "nested deeper than 200"),
        (b"? " * 100_000, 1, "a key must be text"),
    ],
)
def test_yaml_that_json_cannot_hold_is_refused_with_its_line(
    text: bytes, line: int, said: str
) -> None:
    with pytest.raises(FormatFault) as refused:
        parse(text)

    assert refused.match(said)
    assert refused.value.line == line


@pytest.mark.parametrize("text", [b"a: 1\nb: !hex zz\n", b"a: 1\nb: !hex [zz]\n"])
def test_a_text_that_a_tag_cannot_convert_is_refused_with_its_line(text: bytes) -> None:
    tags = Tags(texts={"!hex": lambda digits: bytes.fromhex(digits).decode()})

    with pytest.raises(FormatFault, match="non-hexadecimal") as refused:
        parse(text, tags)
    assert refused.value.line == 2


def test_yaml_may_nest_as_deep_as_json() -> None:
    text = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH

    assert parse(text) == json.loads(text)


def test_a_text_above_the_size_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_parser, "MAX_SIZE", 4)

    assert parse(b"a: 1") == {"a": 1}
    with pytest.raises(FormatFault, match="too much for YAML"):
        parse(b"a: 12")


@pytest.mark.parametrize("length", [0, 1, 40])
@given(data=st.data())
def test_any_text_is_read_or_refused_with_a_fault(length: int, data: st.DataObject) -> None:
    pieces = st.sampled_from(["a", ": ", "- ", "\n", "  ", "'", '"', "|", ">", "[", "}", "{", ",", "#", "&b", "*b", "!", "%", "\0", "\r", "é", "? ", "<<", "---\n"])  # fmt: skip
    text = "".join(data.draw(st.lists(pieces, max_size=length)))

    try:
        value = parse(text.encode())
    except FormatFault:
        return
    json.dumps(value, allow_nan=False)


def test_a_value_is_found_on_the_line_of_its_key() -> None:
    text = (
        b"# first\na:\n  b:\n    - c: 1\n      d: |\n        x\n    -\n      e: 2\nf: [1,\n  2]\n"
    )

    lines = {
        (): 2,
        ("a",): 2,
        ("a", "b"): 3,
        ("a", "b", 0): 4,
        ("a", "b", 0, "d"): 5,
        ("a", "b", 1): 8,
        ("a", "b", 1, "e"): 8,
        ("f",): 9,
        ("f", 1): 10,
        ("a", "b", 9): 3,
        ("zzz",): 2,
    }
    assert {place: line_of(text, place) for place in lines} == lines


def _unlike_agenttape(value: Any) -> Any:
    # PyYAML writes the text `1e5` without quotes and U+0085 for a line break, AgentTape the number
    # and the character: those are read.
    match value:
        case str():
            return "_" + re.sub("[\x85\u2028\u2029]", "", value)
        case list():
            return [_unlike_agenttape(item) for item in value]
        case dict():
            return {
                _unlike_agenttape(name): _unlike_agenttape(inner) for name, inner in value.items()
            }
        case _:
            return value
