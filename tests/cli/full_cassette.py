"""A cassette with all that a cassette may hold, and the stores it is brought into."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

from tapeway.core.json_text import Json
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction, Interaction
from tapeway.core.model.messages import BodyFile
from tapeway.stores.file.store import FileStore
from tests.stores.postgres_server import run as statement
from tests.stores.recordings import HEAD
from tests.support import fork_server
from tests.support.exchanges import interaction
from tests.support.shell_blocks import background

META: dict[str, Json] = {
    "tapeway_version": "0",
    "rules": {"ignore": ["query.at"]},
    "é": [None, 1.5],
}
LARGE = b"large " * 300_000
NAME = "suite/all"
STORES = ("folder", "yaml", "sqlite", "postgresql", "remote")


def interactions() -> list[AnyInteraction]:
    """Seven of them, without the large body: the second, third and fourth to last are alike."""
    plain = interaction()
    items: list[AnyInteraction] = [
        plain,
        plain,
        ForeignInteraction(2, {"kind": "tool", "request": {"name": "f"}, "response": {"n": 1}}),
        interaction(target="/v1/é?a=1&at=2", body=b"\xff\x00", at_ms=1.25),
        # The same request again, and again.
        *[replace(plain, response=replace(plain.response, body=b"")) for _ in range(2)],
        ForeignInteraction(6, {"kind": "retrieval", "request": {}, "error": {"type": "E"}}),
    ]
    return [replace(item, index=at) for at, item in enumerate(items)]


async def everything(folder: Path = Path("cassettes")) -> Path:
    """The file of a cassette in this folder that holds those, one with a large body."""
    store = FileStore(folder)
    await store.open()
    kept = await store.keep(NAME, [LARGE])
    items = interactions()
    second = items[1]
    assert isinstance(second, Interaction)
    file = BodyFile(kept.path, kept.size, kept.digest)
    items[1] = replace(second, response=replace(second.response, body=b"", file=file))
    head = CassetteHead(HEAD.created_at, HEAD.run_id, META)
    await store.save(NAME, StoredCassette(head, tuple(items)))
    await store.close()
    return folder / f"{NAME}.json"


@contextmanager
def store_of(sort: str, folder: Path, postgres: str) -> Iterator[str]:
    """The address of an empty store of this sort."""
    if sort == "sqlite":
        yield f"sqlite:{folder}/one.db"
    elif sort == "postgresql":
        schema = f"t_{uuid4().hex[:12]}"
        yield f"{postgres}{'&' if '?' in postgres else '?'}schema={schema}"
        asyncio.run(statement(postgres, f'DROP SCHEMA IF EXISTS "{schema}" CASCADE'))
    elif sort == "remote":
        listen = "--listen 127.0.0.1:0 --admin-listen 127.0.0.1:0"
        with background(
            f"{fork_server.program()} serve --store far {listen}", os.environ, folder
        ) as ready:
            yield ready["admin"]
    else:
        yield f"file:{folder}/{sort}{'?format=yaml' if sort == 'yaml' else ''}"
