"""`tapeway serve --workers N`: the process that was started, and those it started."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.process.serving import Tapeway, eventually
from tests.support import fork_server
from tests.support.raw_client import Answer


class Crew(Tapeway):
    """Serves from `folder/cassettes/all.db` by several workers.

    With `own_workers`, each is started from scratch and the supervisor's own child.
    """

    def __init__(
        self,
        folder: Path,
        workers: int,
        *options: str,
        environ: Mapping[str, str] | None = None,
        own_workers: bool = False,
    ) -> None:
        store = () if "--store" in options else ("--store", f"sqlite:{folder}/cassettes/all.db")
        super().__init__(*(folder, "--workers", str(workers), *store, *options), environ=environ)
        if own_workers:
            self._environ[fork_server.OWN_WORKERS] = "yes"

    @property
    def reopened(self) -> tuple[str, ...]:
        """Options for another one on the same store."""
        return ("--store", f"sqlite:{self.store}/all.db")

    @property
    def workers(self) -> list[int]:
        """Their processes, oldest first."""
        return children(self.pid)

    async def ask_all(self, targets: Sequence[str]) -> list[Answer]:
        """The answers to GETs that are under way at the same time, each on its own connection."""
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(self.ask(target)) for target in targets]
        return [task.result() for task in asked]

    async def journal(self, query: str = "limit=1000") -> list[dict[str, Any]]:
        """What the journal says, newest first."""
        code, page = await self.admin("GET", f"/api/v1/journal?{query}")
        assert code == 200
        return list(page["entries"])

    async def order(self, cassette: str) -> list[int]:
        """The indexes of a cassette's recordings, in its order: calls end in another than they began."""
        page = await self.done("GET", f"cassettes/{cassette}/interactions?limit=1000")
        return [interaction["index"] for interaction in page["interactions"]]

    async def done(self, method: str, path: str, body: object = None) -> Any:
        """What an admin call answers that must go well."""
        code, document = await self.admin(method, f"/api/v1/{path}", body)
        assert code == 200, document
        return document

    async def is_ready(self) -> bool:
        """Whether all are at work."""
        return (await self.admin("GET", "/readyz"))[0] == 200


def children(pid: int) -> list[int]:
    """The processes that one started and that are still there."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(text) for text in found]


async def gone(pids: Sequence[int]) -> None:
    """Return when none of these processes is there any more, not even as a zombie."""

    def none_is() -> bool:
        return not any(Path(f"/proc/{pid}").exists() for pid in pids)

    await eventually(none_is)


def makers(entries: Sequence[dict[str, Any]]) -> set[str]:
    """Which workers served these: an id names the process that gave it out."""
    return {str(entry["id"]).rpartition("-")[0] for entry in entries}
