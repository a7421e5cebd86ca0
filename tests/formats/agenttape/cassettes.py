"""Cassettes that releases of AgentTape wrote, as the tests read them."""

from pathlib import Path

from tapeway.core.model.cassette import StoredCassette
from tapeway.formats.cassette_file import SERIALIZER_BY_SUFFIX

FOLDER = Path(__file__).parents[1] / "data" / "agenttape"
FILES = sorted(path for path in FOLDER.glob("0.*/*.*") if path.suffix in SERIALIZER_BY_SUFFIX)
NAMES = [f"{path.parent.name}/{path.name}" for path in FILES]


def loaded(name: str, text: bytes | None = None) -> StoredCassette:
    """What a file such as `0.1.8/llm.yaml` holds, or would hold with another text."""
    path = FOLDER / name
    beside = path.with_name(path.stem + ".assets")

    def fetch(digest: str) -> bytes | None:
        file = beside / digest.replace(":", "-")
        return file.read_bytes() if file.exists() else None

    return SERIALIZER_BY_SUFFIX[path.suffix].load(
        path.read_bytes() if text is None else text, fetch
    )
