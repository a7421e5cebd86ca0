"""A process that records as fast as it can and says what was acknowledged: `recording_process STORE NAME START`.

With `careless` behind it, a SQLite store syncs nothing.
"""

import asyncio
import sys
from itertools import count

from tapeway.stores.opening import open_store
from tapeway.stores.sqlite import connection
from tests.stores.recordings import HEAD, recording

AT_ONCE = 8


async def record(url: str, name: str, start: int) -> None:
    store = open_store(url)
    await store.open()
    await store.load(name, writable=True)
    numbers = count(start)

    async def keep_recording() -> None:
        while True:
            number = next(numbers)
            await store.append(name, HEAD, recording(number))
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()

    sys.stdout.write("ready\n")
    sys.stdout.flush()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(keep_recording())


if __name__ == "__main__":
    if sys.argv[4:] == ["careless"]:
        connection._FULL = 0
    asyncio.run(record(sys.argv[1], sys.argv[2], int(sys.argv[3])))
