"""Imports modules without the work that nobody needs yet."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType


def imported(name: str) -> ModuleType:
    """The module, imported if it was not. Raises ImportError."""
    # An import leaves no garbage, and each collection looks at all objects: a fifth of the time that
    # the server takes to start.
    collects = gc.isenabled()
    gc.disable()
    try:
        return import_module(name)
    finally:
        if collects:
            gc.enable()


@contextmanager
def without_authorities() -> Iterator[None]:
    """Import modules that make TLS contexts without reading the system's authorities.

    aiohttp reads them twice, an eighth of the time that the server takes to start (ADR 41). The
    contexts of aiohttp trust nobody then: connections need contexts of their own. Use this before the
    program has a second thread.
    """
    # Only here: `--help` and `env` need none.
    import ssl

    def read_none(*_: object) -> None:
        """Stands in for the methods that read authorities."""

    kept = ssl.SSLContext.load_default_certs
    setattr(ssl.SSLContext, "load_default_certs", read_none)  # noqa: B010 - mypy knows it is a method
    setattr(ssl.SSLContext, "set_default_verify_paths", read_none)  # noqa: B010 - likewise
    try:
        yield
    finally:
        setattr(ssl.SSLContext, "load_default_certs", kept)  # noqa: B010 - likewise
        # The class inherits the original.
        del ssl.SSLContext.set_default_verify_paths
