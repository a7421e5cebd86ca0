"""A cassette that is too large for memory, on its way into a store: spooled in a temporary file.

Spooled interactions have been screened. The store reads some interactions at a time from the file,
as often as necessary.
"""

import os
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import overload

from tapeway.body_files import TemporaryFile
from tapeway.core.json_text import dump, parse
from tapeway.core.model.interaction import AnyInteraction, large_bodies, replace_large_bodies
from tapeway.core.model.messages import BodyFile
from tapeway.errors import StoreError
from tapeway.formats.fields import Fields
from tapeway.formats.native.document import decode, encode, numbered


class SpooledInteractions(Sequence[AnyInteraction]):
    """Interactions in order, a line of the file each. Every access reads the disk: use a thread.

    In memory is where each line begins, and where the large bodies are.
    """

    def __init__(self, folder: str | None) -> None:
        """`folder` is that of the file, None for the system's own. Raises StoreError."""
        self.replaced = 0
        """How many secrets were replaced in them."""
        self._file = TemporaryFile(folder)
        self._ends = array("Q", [0])
        self._bodies: dict[str, BodyFile] = {}

    def add(self, items: Sequence[AnyInteraction]) -> None:
        """Add interactions at the end. Raises StoreFull, StoreError."""
        for item in items:
            line = dump(numbered(item.index, encode(item)))
            self._file.write(line)
            self._ends.append(self._ends[-1] + len(line))
            self._bodies.update({file.digest: file for file in large_bodies(item)})

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __iter__(self) -> Iterator[AnyInteraction]:
        return map(self._read, range(len(self)))

    @overload
    def __getitem__(self, at: int) -> AnyInteraction: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[AnyInteraction]: ...

    def __getitem__(self, at: int | slice) -> AnyInteraction | Sequence[AnyInteraction]:
        if isinstance(at, slice):
            return [self._read(each) for each in range(*at.indices(len(self)))]
        return self._read(range(len(self))[at])

    def _read(self, at: int) -> AnyInteraction:
        start, end = self._ends[at], self._ends[at + 1]
        line = os.pread(self._file.fd, end - start, start)
        if len(line) != end - start:
            raise StoreError(
                "a temporary file was cut while it was read: see what removes its content"
            )
        document = Fields.of(parse(line), ())
        item = decode(dict(document.values), document.integer("index", low=0, high=2**53))
        return replace_large_bodies(item, self._body)

    def _body(self, file: BodyFile) -> BodyFile:
        return replace(self._bodies[file.digest], parts=file.parts)
