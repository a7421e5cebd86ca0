"""Standard output and error, which may be closed or lead to somebody who left."""

import os
import sys
from contextlib import suppress
from traceback import walk_tb

import click


def ensure() -> None:
    """Give a closed standard stream a place that takes everything.

    The next file opened would get its descriptor, and be what a library warns into.
    """
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


def failed(exc: BaseException) -> bool:
    """Whether this is about what was to be said, and nothing else."""
    frames = [frame for frame, _ in walk_tb(exc.__traceback__)]
    return any(frame.f_code is click.echo.__code__ for frame in frames)


def settle() -> None:
    """Drop what cannot be written any more: the interpreter would end with a code of its own."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)
