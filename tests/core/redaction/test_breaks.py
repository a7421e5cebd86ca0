"""What stands between the events of a stream again and again is shown to the prefilter once.

That nothing which it finds goes on behind a break is proved: all that may have begun before one is
followed through an automaton of the prefilter's own pattern.
"""

import re
from collections.abc import Iterable
from itertools import product
from re import _constants, _parser
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.redaction import patterns
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.known_values import KnownValues
from tapeway.core.redaction.patterns import BREAKS, secret_prefilter
from tapeway.core.redaction.streamed_secrets import ReadStream

SSE = b"text/event-stream"
KNOWN = (b"sk-A1_b.c", b"0123456789abcdef")
PATTERN: bytes = secret_prefilter(KNOWN).pattern


class Part(NamedTuple):
    """A part of a pattern: the states that it begins and ends with, and whether it may be empty."""

    first: frozenset[int] = frozenset()
    last: frozenset[int] = frozenset()
    empty: bool = True


class Automaton:
    """The positions in a pattern: for each the octets that it takes, and the positions that follow.

    A beginning of the text counts as empty, so that at most too much is followed.
    """

    def __init__(self, pattern: bytes) -> None:
        self._takes: list[frozenset[int]] = []
        self._follows: list[set[int]] = []
        self.whole = self._sequence(_parser.parse(pattern), fold=False)

    @property
    def positions(self) -> set[int]:
        return set(range(len(self._takes)))

    def taken(self, positions: Iterable[int], octet: int) -> set[int]:
        """Those of the positions that take an octet."""
        return {each for each in positions if octet in self._takes[each]}

    def following(self, positions: Iterable[int]) -> set[int]:
        return set().union(*[self._follows[each] for each in positions])

    def finds(self, text: bytes) -> bool:
        """Whether anything in a text is what the pattern describes."""
        waiting = set[int]()
        for octet in text:
            taken = self.taken(waiting | self.whole.first, octet)
            if taken & self.whole.last:
                return True
            waiting = self.following(taken)
        return False

    def alive_behind(self, word: bytes) -> set[int]:
        """The positions that what began before a word may wait at behind it, and nothing else."""
        begun, new = self.positions, set[int]()
        for octet in word:
            begun = self.following(self.taken(begun, octet))
            new = self.following(self.taken(new | self.whole.first, octet))
        return begun - new

    def _joined(self, parts: Iterable[Part]) -> Part:
        found = Part()
        for part in parts:
            for each in found.last:
                self._follows[each] |= part.first
            first = found.first | part.first if found.empty else found.first
            last = found.last | part.last if part.empty else part.last
            found = Part(first, last, found.empty and part.empty)
        return found

    def _sequence(self, items: Iterable[tuple[Any, Any]], *, fold: bool) -> Part:
        return self._joined([self._item(str(name), value, fold=fold) for name, value in items])

    def _item(self, name: str, value: Any, *, fold: bool) -> Part:
        match name:
            case "SUBPATTERN":
                return self._sequence(value[3], fold=fold or bool(value[1] & re.IGNORECASE))
            case "BRANCH":
                parts = [self._sequence(each, fold=fold) for each in value[1]]
                first = frozenset[int]().union(*[part.first for part in parts])
                last = frozenset[int]().union(*[part.last for part in parts])
                return Part(first, last, any(part.empty for part in parts))
            case "MAX_REPEAT":
                return self._repeated(*value, fold=fold)
            case "AT" if str(value) == "AT_BEGINNING":
                return Part()
        octets = _octets(name, value)
        if fold:
            octets |= {each ^ 0x20 for each in octets if bytes([each]).isalpha()}
        self._takes.append(octets)
        self._follows.append(set())
        position = frozenset({len(self._takes) - 1})
        return Part(position, position, empty=False)

    def _repeated(self, least: int, most: Any, inner: Any, *, fold: bool) -> Part:
        endless = most is _constants.MAXREPEAT
        parts: list[Part] = []
        for number in range(max(least, 1) if endless else most):
            part = self._sequence(inner, fold=fold)
            parts.append(part._replace(empty=part.empty or number >= least))
        if endless:
            for each in parts[-1].last:
                self._follows[each] |= parts[-1].first
        return self._joined(parts)


def _octets(name: str, value: Any) -> frozenset[int]:
    every = frozenset(range(256))
    match name:
        case "LITERAL":
            return frozenset({value})
        case "NOT_LITERAL":
            return every - {value}
        case "ANY":
            return every
        case "IN":
            negated = str(value[0][0]) == "NEGATE"
            found = frozenset[int]().union(*[_class(*each) for each in value[negated:]])
            return every - found if negated else found
    raise AssertionError(f"the automaton has no {name}")


def _class(name: Any, value: Any) -> Iterable[int]:
    match str(name):
        case "LITERAL":
            return {value}
        case "RANGE":
            return range(value[0], value[1] + 1)
        case "CATEGORY":
            kinds = {"CATEGORY_SPACE": rb"\s", "CATEGORY_WORD": rb"\w", "CATEGORY_DIGIT": rb"\d"}
            kind = re.compile(kinds[str(value)])
            return {each for each in range(256) if kind.match(bytes([each]))}
    raise AssertionError(f"the automaton has no {name} in a class")


@pytest.fixture(scope="module")
def automaton() -> Automaton:
    return Automaton(PATTERN)


@pytest.mark.parametrize("word", BREAKS)
def test_nothing_that_begins_before_a_break_goes_on_behind_it(
    automaton: Automaton, word: bytes
) -> None:
    assert len(word) == patterns._BREAK
    assert not automaton.alive_behind(word)


@pytest.mark.parametrize("word", [b'":', b"]}", b'"}', b"\n\n", b"{{", b"a"])
def test_the_automaton_follows_what_goes_on(automaton: Automaton, word: bytes) -> None:
    assert automaton.alive_behind(word)


SAMPLES = [
    *(b"sk-ant-api03-0123456789abcdef", b"AKIA0123456789ABCDEF", b'"password": "x"'),
    *(b"https://user:", b"?api_key=", b'token": "Bearer abcdefghijkl', b"PASSWORD = abcdef"),
    *(b"\\nghp_0123456789abcdefghij", b'"key" : "{abc}defghijk]', b" -u me:", b"<secret>"),
    *(b'-key": 1', b"K_TOKEN=abcdef", b"api-key: abcdefgh", b"eyJ012345678"),
    *(b'\\u0022secret\\": 1', b"a0123456JQQJ9b", *KNOWN),
]


PARTS = st.one_of(
    st.sampled_from([b"A", b"B", b" ", b"s", b"k-", b"\\n", b'\\"', b"{", b"}", b","]),
    st.builds(
        lambda text, start, size: text[start : start + size],
        *(st.sampled_from(SAMPLES), st.integers(0, 12), st.integers(1, 40)),
    ),
)


@given(st.lists(PARTS, max_size=6))
def test_the_automaton_finds_what_the_prefilter_finds(
    automaton: Automaton, parts: list[bytes]
) -> None:
    text = b"".join(parts)

    assert automaton.finds(text) or not secret_prefilter(KNOWN).search(text)


def test_the_prefilter_finds_each_sample() -> None:
    assert [each for each in SAMPLES if not secret_prefilter(KNOWN).search(b" " + each)] == []


@given(
    st.lists(PARTS, min_size=4, max_size=12),
    st.sampled_from(SAMPLES),
    st.sampled_from(
        [
            (b'data: {"id":"c","d":"', b'"}\n\n'),
            (b'data: {"a":[{"%s":1,"token":"', b'","u":"%s","n":[1]}]}\r\n\r\n'),
            (b'data: {"password":"', b'"}\n\n'),
            (b'["key","', b'"]\n'),
            (b'event: %s\ndata: ["', b'"]\n\n'),
            (b': %s\ndata: [{"key" : "', b'" }]\n\n'),
        ]
    ),
)
def test_a_text_that_is_shortened_is_as_suspect_as_the_body(
    texts: list[bytes], sample: bytes, around: tuple[bytes, bytes]
) -> None:
    before, behind = [each.replace(b"%s", sample) for each in around]
    body = b"".join([before + each + behind for each in texts])
    prefilter = secret_prefilter(KNOWN)
    shown = ReadStream(body, SSE).suspect

    # What is shown may look suspect where the body does not: then the body is searched.
    assert prefilter.search(shown) or not prefilter.search(body)


STRINGS = [[*(b"A", b"B", b"C", b"D", b"E")], [*(b"A", b"B", b"", b"B", b'D","d":"E', b"A", b"C")]]
BEFORE = [b'{"d":"', b'{ "d":"', b'{"i":"c","l":["m","n"],"d":"', b'[{"e":"x"},["l","m"],"']
BEHIND = [b'"', b'","u":"x","n":[1]', b'","u":1', b'" ,"x": "y"', b'","u":[3,"z"]']
IN_LIST = [b'"', b'",{"u":"x"},[1]', b'",1', b'" ,{"x": "y"}', b'",[3,"z"]']
LINE_ENDS = [b"\n\n", b"\r\n\r\n", b" \n", b"\n\nevent: e\n"]
ODD = [b"", b'data: {"odd":1}\n\n', b"data: [DONE]\n\n", b'data: {"d":"A']


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("line_end", LINE_ENDS)
def test_all_between_two_breaks_is_shown(before: bytes, line_end: bytes) -> None:
    is_list = before.startswith(b"[")
    end = (b"]" if is_list else b"}") + line_end
    behinds = IN_LIST if is_list else BEHIND
    for strings, behind, odd, last in product(STRINGS, behinds, ODD, [b"", b"data: 1\n\n"]):
        events = [b"data: " + before + each + behind + end for each in strings]
        body = b"".join([events[0], odd, events[1], odd, *events[2:], last])
        shown = ReadStream(body, SSE).suspect
        places = [found.start() for found in re.finditer(b"|".join(map(re.escape, BREAKS)), body)]
        extents = zip([0, *places], [*places, len(body)], strict=True)

        assert [each for a, b in extents if (each := body[a : b + 2]) not in shown] == []


@given(st.binary(max_size=60))
def test_no_part_of_a_known_value_goes_on_behind_a_break(value: bytes) -> None:
    parts = KnownValues([Secret("x", value)]).constant_parts

    assert not any(octet in part for part in parts for word in BREAKS for octet in word)


def test_what_recurs_is_shown_once() -> None:
    body = b"".join(
        [b'data: {"id":"chatcmpl-1","c":[{"i":0,"d":{"t":"word %d"}}]}\n\n' % n for n in range(500)]
    )
    shown = ReadStream(body, SSE).suspect

    assert len(shown) < len(body) / 2
    assert shown.count(b"chatcmpl") < 20
    assert all(b"word %d" % n in shown for n in range(500))
