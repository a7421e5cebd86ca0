"""Whether misses under ever new names leave memory flat: state is kept for the last of them only.

python -m bench.misses [COUNT] [STORE]

Prints memory after each tenth, and at the end the CPU time of ten idle seconds.
"""

import http.client
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

from bench.heartbeat import Server, question

_CLIENTS = 4


def miss(proxy: str, numbers: range) -> None:
    """Ask under a name of its own for each number."""
    place = urlsplit(proxy)
    client = http.client.HTTPConnection(place.hostname or "", place.port)
    body = question(0)
    for number in numbers:
        path = f"/@nobody-{number}/v1/chat/completions"
        client.request("POST", path, body, {"Content-Type": "application/json"})
        answer = client.getresponse()
        answer.read()
        assert answer.status == 400, answer.status
    client.close()


def resident_mib(pid: int) -> float:
    """Memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024 / 1024


def run(count: int, store: str) -> None:
    """All misses, in ten parts."""
    server = Server(store, "http://127.0.0.1:9", "--mode", "replay")
    clock = ~server.process.pid << 3 | 2
    started = time.perf_counter()
    for part in range(10):
        numbers = range(part * count // 10, (part + 1) * count // 10)
        shares = [numbers[first::_CLIENTS] for first in range(_CLIENTS)]
        threads = [threading.Thread(target=miss, args=(server.proxy, share)) for share in shares]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(
            f"{numbers.stop:9,} misses  {time.perf_counter() - started:6.0f} s  "
            f"{resident_mib(server.process.pid):6.1f} MiB",
            flush=True,
        )
    used = time.clock_gettime(clock)
    time.sleep(10)
    print(f"ten idle seconds: {time.clock_gettime(clock) - used:.3f} s of CPU time", flush=True)
    server.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        run(int((sys.argv[1:] or ["1000000"])[0]), (sys.argv[2:] or [folder])[0])
