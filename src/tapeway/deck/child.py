"""The process of a deck: `tapeway serve` that also stops when its parent is gone."""

import os
import signal
import sys
import threading

from tapeway.cli.main import main


def _stop_with_parent() -> None:
    # The parent never writes: a read ends when it has closed the pipe, or has ended itself.
    os.read(sys.stdin.fileno(), 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    main()
