"""Recordings to put into stores."""

from collections.abc import Iterable
from pathlib import Path

from tapeway.core.model.cassette import CassetteHead, Recording, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.errors import StoreError, StorePoisoned
from tapeway.ports import CassetteStore
from tests.support.exchanges import interaction

HEAD = CassetteHead("2026-11-21T20:35:14.904097", "run-1", {"tapeway_version": "0"})


def recording(index: int, *supersedes: int, body: bytes = b"") -> Recording:
    """A recording told from others by its body and target."""
    body = body or b'{"answer": %d}' % index
    recorded = interaction(
        index=index,
        target=f"/v1/{index}",
        body=body,
        at_ms=1.5,
    )
    return Recording(recorded, supersedes)


def bodies(cassette: StoredCassette | None) -> list[bytes]:
    """The answers of a cassette in order."""
    assert cassette is not None
    return [exchange.response.body for exchange in exchanges(cassette.interactions)]


def indexes(cassette: StoredCassette | None) -> list[int]:
    assert cassette is not None
    return [item.index for item in cassette.interactions]


def exchanges(found: Iterable[AnyInteraction]) -> list[Interaction]:
    return [item for item in found if isinstance(item, Interaction)]


def answers(*numbers: int) -> list[bytes]:
    return [b'{"answer": %d}' % number for number in numbers]


async def record(store: CassetteStore, *numbers: int, name: str = "x") -> None:
    """Recordings of these numbers, brought into the cassette's final form."""
    for number in numbers:
        await store.append(name, HEAD, recording(number))
    await store.release(name)


async def is_poisoned(store: CassetteStore) -> bool:
    """Whether nothing can be recorded since a write failed."""
    try:
        await store.check_writes()
    except StoreError as exc:
        return isinstance(exc, StorePoisoned)
    return False


def facts(path: Path) -> tuple[int, ...]:
    """What tells whether a file or folder was touched."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size
