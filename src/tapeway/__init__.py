"""Record and replay HTTP and LLM calls with a proxy in front of an unchanged application."""

from tapeway.deck.admin_client import DeckError
from tapeway.deck.deck import AsyncDeck, Deck, serve

__all__ = ["AsyncDeck", "Deck", "DeckError", "serve"]
__version__ = "0.1.0"
