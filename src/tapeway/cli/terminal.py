"""Output for people: printable text, colours, units, progress bars, errors, and streams that may be
closed.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from traceback import walk_tb
from typing import Literal

import click

from tapeway.core.text import escape_unprintable

Role = Literal["heading", "good", "bad", "note"]
_STYLES: dict[Role, dict[str, str | bool]] = {
    "heading": {"bold": True},
    "good": {"fg": "green"},
    "bad": {"fg": "red"},
    "note": {"fg": "yellow"},
}

DONE, FOUND, NOT_DONE = 0, 1, 2
"""Exit codes of the cassette commands: all is well, something was found, something failed."""


def line(text: str) -> str:
    """The text on one line, with escapes for unprintable characters: no text may steer a terminal."""
    return escape_unprintable(text)


def block(text: str) -> str:
    """The text with escapes for unprintable characters, except line breaks and tabs."""
    return "".join(
        [
            character
            if character.isprintable() or character in "\n\t"
            else escape_unprintable(character)
            for character in text
        ]
    )


def styled(text: str, role: Role) -> str:
    """The text in the colour of a role; `click.echo` leaves out colours where there is no terminal.

    Plain if NO_COLOR is set to anything (no-color.org), or on a terminal that knows no colours.
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return click.style(text, **_STYLES[role])  # type: ignore[arg-type] # colours and switches


def size(octets: int) -> str:
    """`512 B`, `1.5 MiB`."""
    number, unit = float(octets), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if number < 1024:
            break
        number, unit = number / 1024, larger
    return f"{octets} B" if unit == "B" else f"{number:.1f} {unit}"


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """`1 interaction`, `2 interactions`."""
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"


def print_error(message: str) -> None:
    """Print `tapeway: MESSAGE` on standard error, on one line."""
    click.echo(f"{styled('tapeway:', 'bad')} {line(message)}", err=True)


_show_part: ContextVar[Callable[[str], None] | None] = ContextVar("_show_part", default=None)
"""Shows how far the current item of a bar over several is."""


@contextmanager
def progress(label: str, length: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, to be called with each step's size; nothing without a terminal.

    Below `progress_of_all` the bar is a part of the bar for all.
    """
    if (show := _show_part.get()) is not None:
        yield _part(show, length)
        return
    with click.progressbar(
        length=length, label=label, file=sys.stderr, hidden=not sys.stderr.isatty(), show_pos=True
    ) as bar:
        yield bar.update


def _part(show: Callable[[str], None], length: int) -> Callable[[int], None]:
    done = 0

    def step(count: int) -> None:
        nonlocal done
        done += count
        show(f"{done}/{length}")

    return step


@contextmanager
def progress_of_all(label: str, names: Sequence[str]) -> Iterator[Iterable[str]]:
    """These names, with one bar on standard error; each is done when the next is taken.

    A single name gets no bar: the work on this name may show a bar.
    """
    if len(names) < 2 or not sys.stderr.isatty():
        yield names
        return
    shown = ""

    def name_and_part(name: str | None) -> str:
        return f"{line(name)} {shown}".rstrip() if name is not None else ""

    with click.progressbar(
        names, label=label, file=sys.stderr, show_pos=True, item_show_func=name_and_part
    ) as bar:

        def show(part: str) -> None:
            nonlocal shown
            shown = part
            bar.render_progress()

        def each() -> Iterator[str]:
            for name in bar:
                show("")
                yield name

        token = _show_part.set(show)
        try:
            yield each()
        finally:
            _show_part.reset(token)


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
    """Drop buffered output that cannot be written: otherwise the interpreter sets the exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, stream.fileno())
                os.close(null)
