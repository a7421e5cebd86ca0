"""Record and replay HTTP and LLM calls with a proxy in front of an unchanged application."""

from typing import TYPE_CHECKING

from tapeway.version import VERSION

if TYPE_CHECKING:
    from tapeway.embedded.admin_client import DeckError
    from tapeway.embedded.deck import AsyncDeck, Deck, serve

__all__ = ["AsyncDeck", "Deck", "DeckError", "serve"]
__version__ = VERSION


def __getattr__(name: str) -> object:
    # On demand: the command line would spend a third of its start on it.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tapeway.embedded import admin_client, deck

    return getattr(admin_client if name == "DeckError" else deck, name)
