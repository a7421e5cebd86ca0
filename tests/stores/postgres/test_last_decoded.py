"""What a store decoded last is not decoded again."""

from tapeway.core.model.interaction import AnyInteraction
from tapeway.stores.postgres.operations.last_decoded import LastDecoded
from tests.stores.recordings import recording


class Decoder:
    """Makes recordings of documents, and counts how many."""

    def __init__(self) -> None:
        self.decoded: list[tuple[bytes, int]] = []

    def __call__(self, text: bytes, index: int) -> AnyInteraction:
        self.decoded.append((text, index))
        return recording(index, body=text).interaction


def test_what_is_read_again_is_the_same_object_and_what_was_changed_is_not() -> None:
    last, decoder = LastDecoded(), Decoder()
    first = last.items("x", [(0, b"a"), (1, b"b"), (2, b"c")], decoder)
    decoder.decoded.clear()

    again = last.items("x", [(1, b"b"), (2, b"changed"), (3, b"d")], decoder)

    assert again[0] is first[1]
    assert [item.index for item in again] == [1, 2, 3]
    assert decoder.decoded == [(b"changed", 2), (b"d", 3)]


def test_only_what_was_read_last_is_held() -> None:
    last, decoder = LastDecoded(), Decoder()
    last.items("x", [(0, b"a"), (1, b"b")], decoder)
    last.items("x", [(1, b"b")], decoder)
    decoder.decoded.clear()

    last.items("x", [(0, b"a"), (1, b"b")], decoder)

    assert decoder.decoded == [(b"a", 0)]


def test_cassettes_do_not_mix() -> None:
    last, decoder = LastDecoded(), Decoder()
    last.items("x", [(0, b"a")], decoder)
    last.items("y", [(0, b"a")], decoder)

    assert decoder.decoded == [(b"a", 0), (b"a", 0)]
