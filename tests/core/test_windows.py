"""A text in pieces through a window: the same as the whole text at once."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapeway.core.redaction import patterns
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.redactor import Redactor
from tests.core import planted
from tests.core.planted import cut, wrapped

KEYS = ("K3y/0123456789+abc=", "another-key-9876543210", "K3y/0123456789+abc=and-more")
REDACTOR = Redactor("run", [Secret(f"k{at}", key.encode()) for at, key in enumerate(KEYS)])
BOUND = patterns.LONGEST


def through_a_window(pieces: list[bytes]) -> bytes:
    window = REDACTOR.windowed()
    return b"".join([*[window.feed(piece) for piece in pieces], window.finish()])


fillers = st.sampled_from([b"a", b" ", b"-", b'"', b"\\n", b"eyJ", b"sk-", b"%2B"]).flatmap(
    lambda each: st.integers(0, 3 * BOUND).map(lambda count: (each * count)[: 3 * BOUND])
)
plants = st.one_of(
    st.sampled_from([key.encode() for key in KEYS]),
    planted.shaped.map(str.encode),
    st.builds(
        wrapped,
        st.sampled_from(KEYS),
        st.integers(0, 3),
        st.binary(max_size=4),
        st.binary(max_size=4),
    ).map(str.encode),
    st.sampled_from([b" ", b"/", b"x", b"\\n", b"%20"]),
)


@given(st.lists(st.one_of(fillers, plants), max_size=12), st.lists(st.integers(0, 400_000)))
@example([b" " * (2 * BOUND), KEYS[0].encode(), b" " * (2 * BOUND)], [2 * BOUND + 5])
def test_any_pieces_give_what_the_whole_gives(texts: list[bytes], cuts: list[int]) -> None:
    whole = b"".join(texts)

    assert through_a_window(cut(whole, cuts)) == REDACTOR.value(whole)


@pytest.mark.parametrize(
    "text",
    [
        f" {KEYS[0]} sk-ant-api03-0123456789abcdefgh ",
        f"{KEYS[2]}{KEYS[1]}",
        f" {wrapped(KEYS[0], 0, b'x', b'y')} ",
        # These are none for what stands before them.
        "xAKIAIOSFODNN7EXAMPLE ",
        "xsk-ant-api03-0123456789abcdefgh ",
    ],
)
def test_what_is_let_out_may_end_at_every_place_of_a_secret(text: str) -> None:
    before, end = b"x" * (BOUND + 100), b"y" * (2 * BOUND)
    whole = before + text.encode() + end
    for place in range(-70, len(text) + 70):
        # All but the bound is let out.
        fed = len(before) + place + BOUND + 64

        assert through_a_window([whole[:fed], whole[fed:]]) == REDACTOR.value(whole)


def test_no_more_is_held_back_than_twice_the_bound_and_a_piece() -> None:
    window = REDACTOR.windowed()
    given_, taken = 0, 0
    for _ in range(200):
        given_ += 10_000
        taken += len(window.feed(b"x" * 10_000))

        assert given_ - taken < 2 * BOUND + 10_000 + 1000


def test_a_window_of_nothing_is_nothing() -> None:
    assert through_a_window([]) == b""
    assert through_a_window([b"", b""]) == b""
