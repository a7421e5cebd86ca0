"""`tapeway child`: `tapeway serve` that ends with the program by which it was started.

This is no command for people: `tapeway.serve` and the pytest plugin start `tapeway child`, from any
environment. Standard input is one end of a pair of sockets. Through this socket come listening
sockets, and `tapeway child` ends when the other end is closed or the parent process is gone.
"""

import json
import os
import signal
import socket
import sys
import threading

import click

from tapeway.cli.options import command, prepare
from tapeway.embedded.server_process import ARGUMENTS_VARIABLE
from tapeway.importing import imported
from tapeway.server import listeners
from tapeway.settings.client_environment import clients

_MOST_LISTENERS = 2


@click.command()
def child() -> int:
    """Serve for the program that started this process, until the program ends."""
    parent = socket.socket(fileno=os.dup(0))
    for descriptor in socket.recv_fds(parent, 1, _MOST_LISTENERS)[1]:
        listeners.adopt(descriptor)
    threading.Thread(target=_stop_with, args=[parent], daemon=True).start()
    # Other users can see arguments in the process list, and these may hold passwords.
    arguments = json.loads(os.environ.pop(ARGUMENTS_VARIABLE))
    code: int = _served.main(arguments, prog_name="tapeway serve", standalone_mode=False)
    return code


@command()
def _served(**flags: object) -> int:
    """Say how clients reach the proxy, which takes a part of the time of a start, and then serve."""
    settings = prepare(flags)
    known = {
        "clients": clients(settings, os.environ),
        "token": settings.admin_token,
        "certificate": settings.tls_cert,
    }
    sys.stdout.write(f"{json.dumps(known)}\n")
    sys.stdout.flush()
    imported("tapeway.cli.serve").lifecycle.serve(settings)
    return 0


def _stop_with(parent: socket.socket) -> None:
    # The parent writes nothing: reading ends when the parent closes its end, or ends.
    parent.recv(1)
    os.kill(os.getpid(), signal.SIGTERM)
