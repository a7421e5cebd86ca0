"""A recording whose content stays in its file until somebody looks at it.

A large cassette keeps only its index and match keys in memory. Access to a field reads the content of
a recording, the request or the rest, and the content is forgotten when other recordings need the
room. Callers see an ordinary interaction, and one object while the cassette is loaded.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from typing import Any, Protocol

from tapeway.core.model.interaction import Interaction

_CONTENT = ("request", "response", "match_key", "latency_ms", "usage", "tags", "metadata")


class InteractionFile(Protocol):
    """The file that recordings are in. For any thread."""

    def read(self, item: "LazyInteraction", name: str) -> object:
        """The file's value of a field, which the recording may keep.

        Raises StoreError.
        """

    def load(self, index: int) -> Interaction:
        """The whole recording, which nothing keeps. Raises StoreError."""

    def may_hold_credentials(self, index: int) -> bool:
        """Whether the request of a recording may hold any; known without reading it."""

    def has_conditions(self, index: int) -> bool:
        """Whether a recording answers some of the requests with its key alone; known without reading."""


class LazyInteraction(Interaction):
    """A recording in a file: whole, made by tapeway, on a route, and with an answer given once.

    Its answer has none of the `CONDITIONAL_STATUSES`, and it has no large bodies. To look at its
    content raises StoreError where that cannot be read any more.
    """

    __slots__ = ("__weakref__", "file")

    file: InteractionFile

    def __new__(cls, *content: Any, **changes: Any) -> Interaction:  # type: ignore[misc]
        """What `replace` makes of it is in memory, and no longer in the file."""
        return Interaction(*content, **changes)

    def __reduce__(self) -> tuple[type[Interaction], tuple[object, ...]]:
        """A copy is in memory too."""
        return Interaction, tuple([getattr(self, field.name) for field in fields(self)])

    @classmethod
    def at(cls, index: int, file: InteractionFile) -> "LazyInteraction":
        """The recording with this index."""
        made: LazyInteraction = object.__new__(cls)
        made.file = file
        object.__setattr__(made, "index", index)
        object.__setattr__(made, "stored_keys", ())
        object.__setattr__(made, "failure", None)
        object.__setattr__(made, "again", 0)
        return made

    @property
    def has_large_bodies(self) -> bool:
        return False

    def load(self) -> Interaction:
        """The recording in memory, read as a whole; nothing of it is kept here."""
        return self.file.load(self.index)

    def keep(self, content: Mapping[str, object]) -> None:
        """Have what was read, by the names of the fields, in memory until `forget`."""
        for name, value in content.items():
            object.__setattr__(self, name, value)

    def forget(self) -> None:
        """Have nothing in memory. What others hold of it stays theirs."""
        for name in _CONTENT:
            # Only part was read, or a second thread forgets the content too.
            with suppress(AttributeError):
                object.__delattr__(self, name)

    def __getattr__(self, name: str) -> object:
        # Called only for fields not in memory. A second thread may forget the field meanwhile.
        if name not in _CONTENT:
            raise AttributeError(f"an interaction has no {name}")
        return self.file.read(self, name)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Interaction):
            return NotImplemented
        return all(
            getattr(self, field.name) == getattr(other, field.name) for field in fields(self)
        )

    __hash__ = Interaction.__hash__
