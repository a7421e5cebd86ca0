"""The document of what is in force: written by one instance, read by another."""

import pytest

from tapeway.core.model.control import Control, Slot
from tapeway.stores.postgres.operations.coordination import decode_control, encode_control

CONTROL = Control(
    *("auto", "smoke", 7, 5),
    {"a": "replay"},
    {"a": 6, "b": 3},
    generation=9,
    slots={"w0": Slot("a", None, 8, 4), "w1": Slot("b", "record", 9, 9)},
    slot_takes={"a": (7, 8), "b": (9,)},
)


def test_what_was_written_is_read() -> None:
    assert decode_control(encode_control(CONTROL), 9) == CONTROL


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"{", "."),
        (b"[]", "not what this tapeway writes"),
        (b'{"mode":"auto"}', "not what this tapeway writes"),
        (encode_control(CONTROL).replace(b'"auto"', b'"other"'), "no mode 'other'"),
        (encode_control(CONTROL).replace(b'"replay"', b'"other"'), "no mode 'other'"),
    ],
)
def test_what_cannot_be_read_says_why(text: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        decode_control(text, 1)
