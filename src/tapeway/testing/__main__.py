"""`python -m tapeway.testing --port 0`: the stand-in as a process, until SIGTERM or SIGINT."""

import argparse
import asyncio
import json
import os
import signal
import sys

from tapeway.testing.content_codings import CODINGS
from tapeway.testing.stand_in import StandIn


async def _serve(stand_in: StandIn) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with stand_in:
        ready = {"event": "ready", "url": stand_in.url, "pid": os.getpid()}
        sys.stdout.write(json.dumps(ready) + "\n")
        sys.stdout.flush()
        await stopped.wait()


def main() -> None:
    """Listen, print one line of JSON with the address, and serve."""
    parser = argparse.ArgumentParser(prog="python -m tapeway.testing", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--gap", type=float, default=0.0, help="seconds between two writes")
    parser.add_argument(
        "--codings", nargs="*", choices=CODINGS, default=(), help="compress for who accepts it"
    )
    options = parser.parse_args()
    stand_in = StandIn(
        host=options.host, port=options.port, gap_s=options.gap, codings=options.codings
    )
    asyncio.run(_serve(stand_in))


if __name__ == "__main__":
    main()
