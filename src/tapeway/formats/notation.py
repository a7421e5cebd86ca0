"""The two ways to write a cassette file, told apart by how its name ends."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import ForeignInteraction, Interaction
from tapeway.formats import assets, native, yaml_cassette
from tapeway.formats.native import Document, Sheet


@dataclass(frozen=True, slots=True)
class Notation:
    """How to read and write files of one kind; what the functions promise, `native` says."""

    name: str
    endings: tuple[str, ...]
    read: Callable[[bytes], Sheet]
    decode_all: Callable[[bytes, Sheet, assets.Fetch], list[Interaction | ForeignInteraction]]
    write: Callable[[CassetteHead, Iterable[Document]], bytes]

    def load(self, text: bytes, fetch: assets.Fetch = native.no_assets) -> StoredCassette:
        """The cassette a file holds. Raises FormatFault with line, place and reason."""
        sheet = self.read(text)
        return StoredCassette(sheet.head, tuple(self.decode_all(text, sheet, fetch)))

    def save(self, cassette: StoredCassette) -> bytes:
        """The file of a cassette, its interactions numbered by their position."""
        return self.write(cassette.head, [native.encode(each) for each in cassette.interactions])


JSON = Notation("json", (".json",), native.read, native.decode_all, native.write)
YAML = Notation(
    "yaml", (".yaml", ".yml"), yaml_cassette.read, yaml_cassette.decode_all, yaml_cassette.write
)

NOTATIONS = {each.name: each for each in (JSON, YAML)}
ENDINGS = {ending: each for each in (JSON, YAML) for ending in each.endings}
"""Which notation files with an ending are in."""
