"""Imports modules in the time that it takes without garbage collections."""

import gc
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
