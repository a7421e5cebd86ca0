"""A cassette as a log of numbered objects. Large bodies are objects beside the log."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tapeway.core.model.cassette import StoredCassette
from tapeway.errors import StoreError
from tapeway.stores.support.large_bodies import BodyCache

from .bucket import Bucket
from .contents import cassette_of


class LostError(Exception):
    """Another writer has continued the log."""


@dataclass(slots=True)
class CassetteLog:
    """What a writer knows of a log. Methods wait for the network: call them in a thread.

    A writer creates the next object unless an object with the same number exists. So of two writers
    that know the same log, the second is refused. The second writer has to read the log anew.
    """

    bucket: Bucket
    name: str
    writer: bytes
    """The first line of each object of the writer; no other writer has the same."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    appended: bool = False
    is_lost: bool = False
    next: int = 0
    """The number of the next object. 0 until the log is read."""
    waiting: list[str] = field(default_factory=list)
    """The digests of large bodies whose recordings follow."""

    def read(self) -> StoredCassette | None:
        """The present cassette, whoever wrote the log."""
        objects = self.bucket.read(f"log/{self.name}!")
        return self._cassette(objects)

    def claim(self) -> StoredCassette | None:
        """The present cassette, to write on. Raises LostError."""
        objects = self.bucket.read(f"log/{self.name}!")
        news = [content for number, content in objects.items() if 0 < self.next <= number]
        self._check([content.startswith(self.writer) for content in news])
        self.next = max(objects, default=0) + 1
        return self._cassette(objects)

    def commit(self, content: bytes) -> int:
        """Continue the log by an object. Returns the number. Raises LostError."""
        self._check([])
        number = self._known()
        while not self.bucket.create(f"log/{self.name}!{number:012}", content):
            found = self.bucket.get(f"log/{self.name}!{number:012}")
            if found == content:
                # The answer to an earlier try was lost.
                break
            # Another call of the writer may have made the object, or have given up.
            self._check([found is not None and found.startswith(self.writer)])
            number += 1
        self.next = max(self.next, number + 1)
        for digest in {digest for digest in self.waiting if digest.encode() in content}:
            self.waiting.remove(digest)
        return number

    def replace(self, content: bytes) -> str | None:
        """Continue the log by an object after which no earlier object counts. Delete those.

        Returns what could not be deleted. Raises LostError.
        """
        number = self.commit(content)
        try:
            for item in self.bucket.find(f"log/{self.name}!"):
                if item.number < number:
                    self.bucket.delete(item.key)
            for item in self.bucket.find(f"body/{self.name}!"):
                digest = item.key.partition("!")[2].partition(".")[0]
                is_needed = digest.encode() in content or digest in self.waiting
                # A higher number comes from a writer who knows the new object.
                if item.number <= number and not is_needed:
                    self.bucket.delete(item.key)
        except StoreError as exc:
            return f"cassette '{self.name}': what was removed is not deleted ({exc}): edit it again"
        return None

    def put_body(self, digest: str, content: bytes) -> None:
        """Store a large body for a recording that comes next."""
        self.waiting.append(digest)
        self.bucket.put(f"body/{self.name}!{digest}.{self._known()}", content)

    def _known(self) -> int:
        if not self.next:
            listed = self.bucket.find(f"log/{self.name}!")
            self.next = listed[-1].number + 1 if listed else 1
        return self.next

    def _check(self, own: list[bool]) -> None:
        self.is_lost = self.is_lost or not all(own)
        if self.is_lost:
            raise LostError

    def _cassette(self, objects: dict[int, bytes]) -> StoredCassette | None:
        place = f"objects://{self.bucket.host}/{self.bucket.name}/log/{self.name}"
        if (stored := cassette_of(objects, place)) is None:
            return None
        bodies = BodyCache(place, self._pieces, lambda: None)
        return replace(stored, interactions=tuple(map(bodies.with_bodies, stored.interactions)))

    def _pieces(self, digest: str) -> Iterator[bytes]:
        for item in self.bucket.find(f"body/{self.name}!{digest}.")[:1]:
            yield self.bucket.get(item.key) or b""
