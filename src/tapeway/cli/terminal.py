"""Text of anybody's on a terminal, which it is not to steer.

How far a long piece of work is, shown to people who wait for it at a terminal.

Standard output and error, which may be closed or lead to somebody who left.

Secrets found in cassettes, as they are shown: where, of what kind, and never what.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from traceback import walk_tb

import click

Step = Callable[[int], None]

CLEAN, FOUND, UNREADABLE = 0, 1, 2
"""The exit codes of the commands that look for secrets."""


def line(text: str) -> str:
    """The text on one line, with everything but what can be seen written out."""
    return "".join([each if each.isprintable() else _escaped(each) for each in text])


def block(text: str) -> str:
    """The same with its line breaks and tabs."""
    return "".join(
        [each if each.isprintable() or each in "\n\t" else _escaped(each) for each in text]
    )


def size(octets: int) -> str:
    """How many bytes, as people say it."""
    number, unit = float(octets), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if number < 1024:
            break
        number, unit = number / 1024, larger
    return f"{octets} B" if unit == "B" else f"{number:.1f} {unit}"


def counted(count: int, noun: str) -> str:
    """`1 interaction`, `2 interactions`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _escaped(character: str) -> str:
    return f"\\u{ord(character):04x}"


@contextmanager
def progress(label: str, length: int) -> Iterator[Step]:
    """A bar on standard error, to be moved on by so many; where that is no terminal, nothing."""
    hidden = not sys.stderr.isatty()
    with click.progressbar(
        length=length, label=label, file=sys.stderr, hidden=hidden, show_pos=True
    ) as bar:
        yield bar.update


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
