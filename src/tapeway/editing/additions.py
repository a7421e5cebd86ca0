"""What is asked of an editor, and what it tells."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from tapeway.core.model.cassette import CassetteHead, Held


@dataclass(frozen=True, slots=True)
class Reference:
    """An interaction to be superseded: by its index, and its digest in case it moved."""

    index: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Addition:
    """An interaction to be appended, under this index if that is free."""

    item: Held
    index: int | None = None
    supersedes: tuple[Reference, ...] = ()


@dataclass(frozen=True, slots=True)
class Changed:
    """What a cassette is after a change: its digest, and how many secrets were replaced in it."""

    digest: str
    replaced: int = 0


@dataclass(frozen=True, slots=True)
class Walk:
    """What a cassette says of itself, and its interactions in order, to be taken once."""

    head: CassetteHead
    items: AsyncGenerator[Held]
