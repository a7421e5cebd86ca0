"""The recordings of one match key, grouped by the credentials they were made with."""

from bisect import bisect_left, insort
from collections.abc import Collection

from tapeway.core.matching import header_distance
from tapeway.core.matching.key import credential_variant
from tapeway.core.model.interaction import Interaction


class KeyedRecordings:
    """The recordings of one match key, in index order, so that a reload replays in the same order.

    Recordings with other credentials in their target or body are other variants. Where there are
    several, each answers only for itself; a single one answers for any credential.
    """

    __slots__ = ("_headers_differ", "all", "by_variant")

    def __init__(self) -> None:
        self.all: list[Interaction] = []
        self.by_variant: dict[bytes, list[Interaction]] | None = None
        """None where none carries a credential, as for most keys: these need no second index."""
        self._headers_differ: bool | None = None

    @property
    def variants(self) -> Collection[bytes]:
        """The credential variants that are recorded; b"" is the one without a credential."""
        return (b"",) if self.by_variant is None else self.by_variant.keys()

    @property
    def has_variants(self) -> bool:
        """Whether the recordings differ in their credentials."""
        return len(self.variants) > 1

    @property
    def headers_differ(self) -> bool:
        """Whether the recordings differ in their headers."""
        if self._headers_differ is None:
            self._headers_differ = header_distance.headers_differ(self.all)
        return self._headers_differ

    def of_variant(self, variant: bytes) -> list[Interaction]:
        """The recordings that answer a request with this credential."""
        if self.by_variant is not None and len(self.by_variant) > 1:
            return self.by_variant.get(variant, [])
        return self.all

    def add(self, interaction: Interaction) -> None:
        """Add a recording at its place in the order."""
        variant = credential_variant(interaction.request)
        if variant and self.by_variant is None:
            self.by_variant = {b"": list(self.all)} if self.all else {}
        if self._headers_differ is False:
            # Only the new one is compared: polled for hours, a key has thousands of recordings.
            self._headers_differ = header_distance.headers_differ([self.all[0], interaction])
        insort(self.all, interaction, key=_index)
        if self.by_variant is not None:
            insort(self.by_variant.setdefault(variant, []), interaction, key=_index)

    def remove(self, interaction: Interaction) -> None:
        """Remove a recording that is there."""
        self._headers_differ = None
        _remove(self.all, interaction)
        if self.by_variant is not None:
            variant = credential_variant(interaction.request)
            _remove(self.by_variant[variant], interaction)
            if not self.by_variant[variant]:
                del self.by_variant[variant]


def _remove(recordings: list[Interaction], interaction: Interaction) -> None:
    del recordings[bisect_left(recordings, interaction.index, key=_index)]


def _index(interaction: Interaction) -> int:
    return interaction.index
