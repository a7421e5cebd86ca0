"""What a cassette's ETag says."""

import asyncio

from tapeway.core.model.cassette import StoredCassette
from tapeway.formats import fingerprint


async def digest_of(stored: StoredCassette | None) -> str | None:
    """The digest of a whole cassette, None for no cassette."""
    if stored is None:
        return None

    def digest() -> str:
        return fingerprint.of_cassette(
            fingerprint.of_head(stored.head), map(fingerprint.of_item, stored.interactions)
        )

    return await asyncio.to_thread(digest)
