"""Message histories in any store: `from tapeway.integrations.history import StorageProvider`."""

from tapeway.integrations.history.message import Message
from tapeway.integrations.history.provider import StorageProvider

__all__ = ["Message", "StorageProvider"]
