"""What fields of documents are written as."""

import math

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tapeway.formats.fields import all_millis, millis
from tests.support.thoroughness import examples

DURATIONS = (
    st.floats(0, 2e6)
    | st.floats(0, 10)
    | st.floats()
    | st.integers(0, 10**9).map(lambda each: each / 2000)
    | st.integers(0, 10**9).map(lambda each: math.nextafter(each / 2000, 0))
    | st.integers(0, 10**9).map(lambda each: math.nextafter(each / 2000, math.inf))
)


@settings(max_examples=examples(1000))
@given(DURATIONS)
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


@settings(max_examples=examples(1000))
@given(st.lists(DURATIONS) | st.lists(st.floats(0, 1e6)))
@example([1.5, math.nan])
@example([1.5, math.inf, -math.inf])
@example([2.675, 999_999.9995])
@example([1.0, 0.0015])
@example([-0.0, 2.5])
def test_many_durations_are_written_as_each_alone(values: list[float]) -> None:
    assert repr(all_millis(values)) == repr([*map(millis, values)])
