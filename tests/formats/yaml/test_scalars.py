"""The values of YAML texts without quotes."""

import json
import math

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.json_text import NON_FINITE_KEY, Json
from tapeway.formats.yaml.scalars import number, resolve


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("", None), ("~", None), ("null", None), ("Null", None)),
        *(("true", True), ("True", True), ("false", False), ("FALSE", False)),
        *(("0", 0), ("-7", -7), ("18446744073709551616", 2**64)),
        *(("0.5", 0.5), ("1e-05", 1e-05), ("1.0e+20", 1e20), ("-0.0", -0.0), ("1E3", 1000.0)),
    ],
)
def test_a_text_that_is_json_is_that_value(text: str, value: Json) -> None:
    assert json.dumps(resolve(text)) == json.dumps(value)


@pytest.mark.parametrize(
    "text",
    [
        *("no", "No", "yes", "on", "off", "y", "none", "tRUE"),
        *("0644", "0o644", "0x1f", "0b101", "1_000", "1_000.5", "+5", "00", "1.", ".5", "-", "."),
        *("2026-11-22", "2026-11-22T10:00:00Z", "12:30:45", "190:20:30", "1.2.3", "inf", "nan"),
        *("=", "<<", "null ", "-a", "1e", "\u0661"),
    ],
)
def test_anything_else_is_text(text: str) -> None:
    assert resolve(text) == text


@pytest.mark.parametrize(
    ("text", "name"),
    [(".nan", "NaN"), (".NaN", "NaN"), ("+.Inf", "Infinity"), ("-.inf", "-Infinity")],
)
def test_a_number_that_is_not_finite_is_the_object_that_represents_it(text: str, name: str) -> None:
    assert resolve(text) == {NON_FINITE_KEY: name}


@pytest.mark.parametrize("text", ["1e999", "9" * 5000])
def test_a_number_json_cannot_hold_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"number|digits"):
        resolve(text)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_written_number_is_the_same_one_to_every_reader(value: float) -> None:
    for found in (resolve(number(value)), yaml.safe_load(number(value))):
        assert isinstance(found, float)
        assert found == value
        assert math.copysign(1, found) == math.copysign(1, value)
