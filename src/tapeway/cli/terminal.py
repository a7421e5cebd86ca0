"""Output for people: printable text, units, a progress bar, errors, and streams that may be closed."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from traceback import walk_tb

import click

DONE, FOUND, NOT_DONE = 0, 1, 2
"""Exit codes of the cassette commands: all is well, something was found, something failed."""


def line(text: str) -> str:
    """The text on one line, everything unprintable escaped so that it cannot steer a terminal."""
    return "".join([each if each.isprintable() else _escaped(each) for each in text])


def block(text: str) -> str:
    """The same, but line breaks and tabs stay."""
    return "".join(
        [each if each.isprintable() or each in "\n\t" else _escaped(each) for each in text]
    )


def _escaped(character: str) -> str:
    return f"\\u{ord(character):04x}"


def size(octets: int) -> str:
    """`512 B`, `1.5 MiB`."""
    number, unit = float(octets), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if number < 1024:
            break
        number, unit = number / 1024, larger
    return f"{octets} B" if unit == "B" else f"{number:.1f} {unit}"


def counted(count: int, noun: str) -> str:
    """`1 interaction`, `2 interactions`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def print_error(message: str) -> None:
    """Print `tapeway: MESSAGE` on standard error, on one line."""
    click.echo(f"tapeway: {line(message)}", err=True)


@contextmanager
def progress(label: str, length: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, to be called with each step's size; nothing if that is no terminal."""
    hidden = not sys.stderr.isatty()
    with click.progressbar(
        length=length, label=label, file=sys.stderr, hidden=hidden, show_pos=True
    ) as bar:
        yield bar.update


def reopen_closed_streams() -> None:
    """Open closed standard streams on /dev/null.

    Otherwise the next file opened gets their descriptor, and a library's warning is written into it.
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


def is_output_error(exc: BaseException) -> bool:
    """Whether this was raised while printing."""
    frames = [frame for frame, _ in walk_tb(exc.__traceback__)]
    return any(frame.f_code is click.echo.__code__ for frame in frames)


def discard_unwritable_output() -> None:
    """Drop buffered output that cannot be written: the interpreter would exit with its own code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, stream.fileno())
                os.close(null)
