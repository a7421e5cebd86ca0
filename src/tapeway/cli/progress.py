"""How far a long piece of work is, shown to people who wait for it at a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

Step = Callable[[int], None]


@contextmanager
def progress(label: str, length: int) -> Iterator[Step]:
    """A bar on standard error, to be moved on by so many; where that is no terminal, nothing."""
    hidden = not sys.stderr.isatty()
    with click.progressbar(
        length=length, label=label, file=sys.stderr, hidden=hidden, show_pos=True
    ) as bar:
        yield bar.update
