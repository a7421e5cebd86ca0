"""Recordings whose answers lie in files, and what is found of them."""

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from tapeway.body_files import body_pieces
from tapeway.core.model.cassette import Recording, StoredCassette
from tapeway.core.model.messages import BodyFile, Response, ResponseHead
from tapeway.ports import CassetteStore
from tests.stores.recordings import exchanges, recording


def large(index: int, file: BodyFile, *supersedes: int) -> Recording:
    """A recording whose answer lies in a file."""
    made = recording(index, *supersedes)
    response = Response(ResponseHead(200, "OK"), at_ms=1.5, file=file)
    return replace(made, interaction=replace(made.exchange, response=response))


async def kept(store: CassetteStore, pieces: Iterable[bytes], name: str = "x") -> BodyFile:
    """A large body, taken in by a store that keeps such."""
    keeper = store
    assert keeper is not None
    return await keeper.keep(name, pieces)


def body(number: int) -> bytes:
    return b"body %d " % number * 100


def contents(cassette: StoredCassette | None) -> list[bytes]:
    """The answers of a cassette, wherever they lie."""
    assert cassette is not None
    return [
        b"".join(body_pieces(exchange.response.file))
        if exchange.response.file
        else exchange.response.body
        for exchange in exchanges(cassette.interactions)
    ]


def assets(root: Path) -> list[str]:
    return sorted(path.name for path in root.glob("x.assets/*"))


def name(content: bytes) -> str:
    return "sha256-" + hashlib.sha256(content).hexdigest()
