"""What a cassette's ETag says."""

import asyncio

from tapeway.core.model.cassette import StoredCassette
from tapeway.formats.native import document


async def digest_of(stored: StoredCassette | None) -> str | None:
    """The digest of a whole cassette, None for no cassette."""
    if stored is None:
        return None

    def digest() -> str:
        return document.of_cassette(
            document.of_head(stored.head), map(document.of_item, stored.interactions)
        )

    return await asyncio.to_thread(digest)
