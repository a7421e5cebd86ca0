"""Record and replay HTTP and LLM calls in tests: the client of tapeway, which runs elsewhere."""

from .embedded.admin_client import DeckError
from .embedded.deck import AsyncDeck, Deck, serve

__all__ = ["AsyncDeck", "Deck", "DeckError", "serve"]
