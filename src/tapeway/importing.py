"""Imports modules in the time that it takes without what nobody needs yet."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType


def imported(name: str) -> ModuleType:
    """The module, imported if it was not. Raises ImportError."""
    # An import leaves no garbage, and collections during it look again and again at all there is:
    # a fifth of what a start of the server takes.
    collects = gc.isenabled()
    gc.disable()
    try:
        return import_module(name)
    finally:
        if collects:
            gc.enable()


@contextmanager
def without_authorities() -> Iterator[None]:
    """Have modules that make TLS contexts as they are imported not read the system's authorities.

    aiohttp does, twice, which takes an eighth of a start of the server (ADR 41). Its own contexts
    then trust nobody: connections need others. For the beginning of a program, whose only thread
    this is.
    """
    # Only here: `--help` and `env` need none.
    import ssl

    def read_none(*_: object) -> None:
        """In the place of what would read them."""

    kept = ssl.SSLContext.load_default_certs
    setattr(ssl.SSLContext, "load_default_certs", read_none)  # noqa: B010 - mypy knows it is a method
    setattr(ssl.SSLContext, "set_default_verify_paths", read_none)  # noqa: B010 - likewise
    try:
        yield
    finally:
        setattr(ssl.SSLContext, "load_default_certs", kept)  # noqa: B010 - likewise
        # The class inherits it.
        del ssl.SSLContext.set_default_verify_paths
