"""Opens and closes the store of histories."""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from tapeway.core.redaction.credentials import environment_secrets
from tapeway.core.redaction.leak_guard import LeakGuard
from tapeway.errors import StoreError
from tapeway.integrations.history.storage import CassetteHistory, HistoryStorage
from tapeway.ports import CassetteStore
from tapeway.stores.opening import open_store

_KEEP = "give StorageProvider keep_secrets=True"


def _now() -> datetime:
    return datetime.now(UTC)


class StorageProvider:
    """Histories in a store: `memory:`, a folder, `sqlite:FILE`, `postgresql://…`, `http(s)://…`.

    Use it as a context manager, or call `initialize` and `close`. A message that shows a credential
    of the environment is refused unless `keep_secrets` is set. Raises ConfigError for an invalid
    address.
    """

    def __init__(
        self,
        store: str | Path | CassetteStore,
        *,
        keep_secrets: bool = False,
        now: Callable[[], datetime] = _now,
    ) -> None:
        self._store = open_store(str(store)) if isinstance(store, str | Path) else store
        self._keep_secrets = keep_secrets
        self._now = now
        self._history: CassetteHistory | None = None

    @property
    def history(self) -> HistoryStorage:
        """The histories. Raises StoreError before `initialize` and after `close`."""
        if self._history is None:
            raise StoreError(
                f"the history in {self._store.url} is not open: call initialize() first", status=503
            )
        return self._history

    async def initialize(self) -> None:
        """Open the store; a second call does nothing. Raises StoreError."""
        if self._history is None:
            await self._store.open()
            known = environment_secrets(os.environ)
            check = None if self._keep_secrets else LeakGuard(known, remedy=_KEEP).check
            self._history = CassetteHistory(self._store, self._now, check)

    async def close(self) -> None:
        """Write the final form of every session; a second call does nothing. Raises StoreError."""
        if (history := self._history) is not None:
            self._history = None
            try:
                await history.release_all()
            finally:
                await self._store.close()

    async def __aenter__(self) -> Self:
        await self.initialize()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
