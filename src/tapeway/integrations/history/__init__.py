"""Message histories in any store: `from tapeway.integrations.history import StorageProvider`.

`HistoryStorage` is the protocol behind `StorageProvider.history`.
"""

from tapeway.integrations.history.message import Message
from tapeway.integrations.history.provider import StorageProvider
from tapeway.integrations.history.storage import HistoryStorage

__all__ = ["HistoryStorage", "Message", "StorageProvider"]
