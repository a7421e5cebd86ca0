"""Large bodies in a SQLite store: once each, as long as a recording refers to them."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from tapeway.body_files import PIECE, body_pieces
from tapeway.core.model.cassette import Recording, StoredCassette
from tapeway.core.model.messages import BodyFile, Response, ResponseHead
from tapeway.errors import CassetteCorrupt, StoreError
from tapeway.stores.sqlite.store import SqliteStore
from tests.stores.large_bodies import body, contents, large
from tests.stores.recordings import HEAD, answers, exchanges, is_poisoned, recording


async def keep(store: SqliteStore, index: int, content: bytes, *supersedes: int) -> None:
    """A recording whose answer is kept first."""
    kept = await store.keep("x", [content])
    await store.append("x", HEAD, large(index, kept, *supersedes))


def held(file: Path) -> list[int]:
    """The sizes of all bodies that lie in the file, by their pieces."""
    with closing(apsw.Connection(str(file))) as connection:
        rows = connection.execute(
            "SELECT sum(length(data)) FROM pieces GROUP BY body ORDER BY 1"
        ).fetchall()
        count = connection.execute("SELECT count(*) FROM bodies").get
    assert count == len(rows)
    return [size for (size,) in rows if isinstance(size, int)]


async def remove_first(store: SqliteStore) -> None:
    """Save the cassette without its first recording."""
    whole = await store.load("x", writable=True)
    assert whole is not None
    await store.save("x", StoredCassette(HEAD, whole.interactions[1:]))


@pytest.mark.parametrize("size", [1, PIECE - 1, PIECE, PIECE + 1, 17 * PIECE + 5])
async def test_a_body_comes_back_as_it_was_kept(store: SqliteStore, size: int) -> None:
    content = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    cut = [content[:100], b"", content[100:]]

    kept = await store.keep("x", cut)
    assert (kept.path, kept.size) == ("", size)
    assert b"".join(body_pieces(kept)) == content
    await store.append("x", HEAD, large(0, kept))

    found = await store.load("x", writable=False)
    assert contents(found) == [content]
    assert found is not None
    (exchange,) = exchanges(found.interactions)
    assert exchange.response.file == kept


async def test_a_request_may_have_one_too(store: SqliteStore) -> None:
    kept = await store.keep("x", [body(1)])
    made = recording(0).exchange
    made = replace(made, request=replace(made.request, body=b"", file=kept))
    await store.append("x", HEAD, Recording(made))

    (found,) = await store.documents("x", [0])
    (exchange,) = exchanges([found.item])
    assert exchange.request.file is not None
    assert b"".join(body_pieces(exchange.request.file)) == body(1)


async def test_one_body_of_two_recordings_is_there_once(store: SqliteStore, file: Path) -> None:
    await keep(store, 0, body(0))
    await keep(store, 1, body(0))
    assert held(file) == [len(body(0))]

    await remove_first(store)
    await store.release("x")
    assert contents(await store.load("x", writable=False)) == [body(0)]


async def test_a_body_goes_with_its_last_recording(store: SqliteStore, file: Path) -> None:
    await keep(store, 0, body(0))
    await keep(store, 1, body(1))
    await keep(store, 2, b"the new answer", 0)
    await store.release("x")

    assert held(file) == sorted([len(b"the new answer"), len(body(1))])
    assert contents(await store.load("x", writable=False)) == [b"the new answer", body(1)]


async def test_a_body_that_nobody_has_recorded_goes_with_the_end_of_the_use(
    store: SqliteStore, file: Path
) -> None:
    await keep(store, 0, body(0))
    await store.keep("x", [b"nobody's"])
    assert await store.erase() == []
    # Somebody may be about to record it.
    assert len(held(file)) == 2

    await store.release("x")
    assert held(file) == [len(body(0))]


async def test_a_body_that_is_kept_again_outlives_its_last_recording(
    store: SqliteStore, file: Path
) -> None:
    await keep(store, 0, body(0))
    again = await store.keep("x", [body(0)])
    await remove_first(store)
    assert await store.erase() == []

    await store.append("x", HEAD, large(1, again))
    assert contents(await store.load("x", writable=False)) == [body(0)]


async def test_a_body_that_breaks_off_leaves_nothing(store: SqliteStore, file: Path) -> None:
    def breaking() -> Iterator[bytes]:
        yield b"x" * 20 * PIECE
        raise StoreError("a credential would stand in it")

    await keep(store, 0, body(0))
    with pytest.raises(StoreError, match="a credential"):
        await store.keep("x", breaking())

    assert held(file) == [len(body(0))]


async def test_a_recording_whose_body_is_not_there_is_refused(store: SqliteStore) -> None:
    lost = BodyFile("", 5, "0" * 64)
    with pytest.raises(CassetteCorrupt, match=r"large body sha256-0000.* is not there"):
        await store.append("x", HEAD, large(0, lost))
    await store.append("x", HEAD, recording(1))

    assert contents(await store.load("x", writable=False)) == answers(1)
    assert not await is_poisoned(store)


async def test_a_body_that_is_gone_when_it_is_read_says_so(store: SqliteStore, file: Path) -> None:
    await keep(store, 0, body(0))
    (found,) = await store.documents("x", [0])
    await store.remove("x")
    await keep(store, 1, body(1))
    await store.release("x")

    (exchange,) = exchanges([found.item])
    assert exchange.response.file is not None
    with pytest.raises(CassetteCorrupt, match="was removed or replaced"):
        b"".join(body_pieces(exchange.response.file))


async def test_hundreds_of_bodies_need_no_hundreds_of_descriptors(store: SqliteStore) -> None:
    kept = await store.keep("x", [body(0)])
    response = Response(ResponseHead(200, "OK"), at_ms=1.5, file=kept)
    many = [replace(recording(n).exchange, response=response) for n in range(300)]
    before = _descriptors()
    await store.extend("x", HEAD, many)

    found = await store.load("x", writable=False)

    assert found is not None
    assert len(found.interactions) == 300
    assert _descriptors() < before + 20


async def test_a_whole_cassette_with_bodies_is_saved_and_removed(
    store: SqliteStore, file: Path
) -> None:
    await keep(store, 0, body(0))
    await keep(store, 1, body(1))
    whole = await store.load("x", writable=False)
    assert whole is not None

    await store.save("x", StoredCassette(HEAD, whole.interactions[1:]))
    await store.save("y", whole)
    await store.remove("x")
    await store.release("x")

    assert contents(await store.load("y", writable=False)) == [body(0), body(1)]
    assert len(held(file)) == 2
    await store.remove("y")
    await store.release("y")
    assert held(file) == []


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
