"""Readings of cassettes that are kept until these change."""

from dataclasses import dataclass

from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.inspection.known import HeldRecordings, KnownCassettes
from tests.support.exchanges import interaction


@dataclass(frozen=True, slots=True)
class Reading:
    of: str
    size: int = 10


@dataclass(frozen=True, slots=True)
class OtherReading:
    of: str
    size: int = 10


class Reader:
    """Readings, and what was read for them."""

    def __init__(self, most_bytes: int) -> None:
        self.known = KnownCassettes(most_bytes)
        self.read: list[str] = []

    async def get(self, name: str, version: object = 1) -> Reading:
        async def read() -> Reading:
            self.read.append(f"{name} {version}")
            return Reading(name)

        return await self.known.of(Reading, name, version, read)


async def test_readings_that_are_kept_have_a_bound() -> None:
    reader = Reader(most_bytes=20)

    for name in ("a", "b", "a", "c", "a", "b"):
        assert (await reader.get(name)).of == name

    assert reader.read == ["a 1", "b 1", "c 1", "b 1"]


async def test_another_version_is_read_anew() -> None:
    reader = Reader(most_bytes=100)

    for version in (1, 1, 2, 2):
        await reader.get("a", version)

    assert reader.read == ["a 1", "a 2"]


async def test_a_cassette_may_have_readings_of_several_kinds() -> None:
    reader = Reader(most_bytes=100)

    async def other() -> OtherReading:
        return OtherReading("a")

    await reader.get("a")
    await reader.known.of(OtherReading, "a", 1, other)
    await reader.get("a")

    assert reader.read == ["a 1"]


def cassette(*indexes: int) -> StoredCassette:
    head = CassetteHead("2026-01-02T03:04:05+00:00", "a-run")
    return StoredCassette(head, [interaction(index=index) for index in indexes])


def test_recordings_are_found_by_index() -> None:
    held = HeldRecordings(cassette(5, 3), 700)

    assert [held.get(at) is None for at in (3, 4, 5, 6)] == [False, True, False, True]
    assert (len(held), held.size) == (2, 700)


def test_recordings_are_paged_in_the_order_of_their_indexes() -> None:
    held = HeldRecordings(cassette(5, 3, 9), 700)

    pages = [held.page(after, 2) for after in (None, 3, 5, 9)]

    assert [([recording.index for recording in page], following) for page, following in pages] == [
        ([3, 5], 5),
        ([5, 9], None),
        ([9], None),
        ([], None),
    ]
