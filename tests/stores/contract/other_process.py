"""A process with a store of its own: `other_process URL NAME load`, or `append N` for `load`.

It prints the answers it finds when it is done.
"""

import asyncio
import json
import sys

from tapeway.stores.opening import open_store
from tests.stores.outside import install
from tests.stores.recordings import HEAD, bodies, recording


async def work(url: str, name: str, numbers: list[int]) -> list[bytes]:
    store = open_store(url)
    await store.open()
    try:
        for number in numbers:
            await store.append(name, HEAD, recording(number))
        found = await store.load(name, writable=False)
        return bodies(found) if found is not None else []
    finally:
        await store.close()


if __name__ == "__main__":
    install()
    _, address, cassette, _, *rest = sys.argv
    found = asyncio.run(work(address, cassette, [int(text) for text in rest]))
    sys.stdout.write(json.dumps([piece.decode() for piece in found]))
