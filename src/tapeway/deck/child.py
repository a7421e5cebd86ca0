"""The process of a deck: `tapeway serve` that also stops when its parent is gone."""

import json
import os
import signal
import socket
import sys
import threading

from tapeway.cli.main import main
from tapeway.deck.server_process import ARGUMENTS_VARIABLE
from tapeway.server import listeners

_MOST_LISTENERS = 2


def _stop_with(parent: socket.socket) -> None:
    # The parent writes nothing: reading ends when the parent closes its end, or ends.
    parent.recv(1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    # The standard input is one end of a pair of sockets.
    parent = socket.socket(fileno=os.dup(0))
    for each in socket.recv_fds(parent, 1, _MOST_LISTENERS)[1]:
        listeners.adopt(each)
    threading.Thread(target=_stop_with, args=[parent], daemon=True).start()
    sys.argv[1:] = json.loads(os.environ.pop(ARGUMENTS_VARIABLE))
    main()
