"""Files of other tools, and how tests read them."""

from pathlib import Path
from typing import Any

import pytest

from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.interaction import Interaction
from tapeway.formats import registry
from tapeway.formats.conversion_loss import ImportedCassette
from tapeway.formats.errors import FormatFault
from tapeway.formats.registry import Format

FRESH = CassetteHead("2026-11-22T00:00:00Z", "fresh")
_FOLDER = Path(__file__).parents[1] / "data" / "others"


def text(name: str) -> bytes:
    return (_FOLDER / name).read_bytes()


def kind(name: str) -> Format:
    found = registry.by_name(name)
    assert found is not None
    return found


def load(name: str, content: bytes) -> ImportedCassette:
    return kind(name).load(content, FRESH)


def calls(loaded: ImportedCassette) -> list[Interaction]:
    found = [
        interaction
        for interaction in loaded.cassette.interactions
        if isinstance(interaction, Interaction)
    ]
    assert len(found) == len(loaded.cassette.interactions)
    return found


def losses(loaded: Any) -> list[str]:
    return [str(loss) for loss in loaded.losses]


def fault(name: str, content: bytes) -> tuple[str, int | None]:
    with pytest.raises(FormatFault) as refused:
        load(name, content)
    return str(refused.value), refused.value.line
