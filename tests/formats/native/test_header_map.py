"""The fields of headers, as recorded and as edited by people."""

import json
from typing import Any

import pytest

from tapeway.core.model.messages import Headers
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Fields
from tapeway.formats.native import header_map

UNIQUE = '{"headers": {"X-Request-Id": "req-%d"}}'

SHOWN: list[tuple[Headers, dict[str, Any]]] = [
    ((), {"headers": {}}),
    (((b"A", b"1"), (b"b", b"h\xc3\xa9")), {"headers": {"A": "1", "b": "hé"}}),
    (((b"V", b"1"), (b"V", b"2"), (b"a", b"")), {"headers": {"V": ["1", "2"], "a": ""}}),
    (
        ((b"V", b"1"), (b"a", b"3"), (b"V", b"2")),
        {"headers": {"V": ["1", "2"], "a": "3"}, "header_order": ["V", "a", "V"]},
    ),
    (
        ((b"V", b"1"), (b"v", b"2")),
        {"headers": {"V": ["1", "2"]}, "header_order": ["V", "v"]},
    ),
    (
        ((b"a", b"caf\xe9"), (b"A", b"\xc3\xa9")),
        {"headers": {"a": ["café", "Ã©"]}, "header_order": ["a", "A"], "latin1": ["a"]},
    ),
]


@pytest.mark.parametrize(("headers", "shown"), SHOWN)
def test_headers_are_an_object_and_come_back_exactly(
    headers: Headers, shown: dict[str, Any]
) -> None:
    assert header_map.encode(headers, "response") == shown
    assert _read(shown) == headers


def test_a_value_added_by_hand_comes_after_the_recorded_order() -> None:
    shown = {"headers": {"V": ["1", "2", "4"], "a": "3", "b": "5"}, "header_order": ["V", "a", "V"]}

    assert _read(shown) == ((b"V", b"1"), (b"a", b"3"), (b"V", b"2"), (b"V", b"4"), (b"b", b"5"))


def test_a_header_removed_by_hand_is_gone_though_the_order_names_it() -> None:
    shown = {"headers": {"V": "1"}, "header_order": ["V", "a", "V"]}

    assert _read(shown) == ((b"V", b"1"),)


def test_one_name_in_two_cases_as_another_tool_writes_it() -> None:
    assert _read({"headers": {"A": "1", "a": "2"}}) == ((b"A", b"1"), (b"a", b"2"))


@pytest.mark.parametrize("pair", [(b"X A", b"1"), (b"", b"1"), (b"a", b"1\r\nb: 2"), (b"a", b"\0")])
def test_what_could_not_be_read_again_is_not_written(pair: tuple[bytes, bytes]) -> None:
    with pytest.raises(FormatFault):
        header_map.encode((pair,), "response")


def _read(shown: dict[str, Any]) -> Headers:
    return header_map.decode(Fields(shown, ()))


def test_recordings_share_the_fields_that_they_have_in_common() -> None:
    shown = {"headers": {"Content-Type": "application/json", "b": "h"}, "header_order": ["b"]}

    assert all(one is other for one, other in zip(_read(shown), _read(shown), strict=True))


def test_fields_with_different_values_share_their_name() -> None:
    # As in a file, each text is another object.
    ((one, _),), ((other, _),) = (
        header_map.decode(Fields(json.loads(UNIQUE % number), ())) for number in range(2)
    )
    assert one is other
