"""What fields of documents are written as."""

import math

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tapeway.formats.fields import millis
from tests.support.thoroughness import examples


@settings(max_examples=examples(1000))
@given(
    st.floats(0, 2e6)
    | st.floats(0, 10)
    | st.floats()
    | st.integers(0, 10**9).map(lambda number: number / 2000)
    | st.integers(0, 10**9).map(lambda number: math.nextafter(number / 2000, 0))
    | st.integers(0, 10**9).map(lambda number: math.nextafter(number / 2000, math.inf))
)
@example(0.0005)
@example(0.0015)
@example(2.675)
@example(999_999.9995)
@example(math.nan)
@example(math.inf)
@example(-1.0)
def test_a_duration_is_rounded_to_the_microsecond_as_python_rounds(value: float) -> None:
    valid = math.isfinite(value) and value > 0
    assert repr(millis(value)) == repr(round(value, 3) if valid else 0.0)
