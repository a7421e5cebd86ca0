"""The page on streaming: its table of end marks is complete, its failures are replayed."""

import re
from collections.abc import Iterator

from tapeway.core.model.interaction import Interaction
from tapeway.core.streams.end_marks import EndMarks, LastLine
from tapeway.formats.native import document
from tapeway.providers.endpoints import ENDPOINTS
from tapeway.stores.memory import MemoryStore
from tests.server.in_process_proxy import running_proxy
from tests.support.markdown import ROOT, blocks

TEXT = (ROOT / "docs/streaming.md").read_text("utf-8")


def rows(title: str) -> Iterator[list[str]]:
    """The rows of the last table below one heading."""
    section = TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    table = section.rpartition("| --- |\n")[2]
    for line in table.splitlines():
        if line.startswith("|"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def test_the_table_of_marks_has_every_endpoint_and_every_mark() -> None:
    shown = {
        endpoint: row for row in rows("Verdicts") for endpoint in re.findall(r"`([^`]+)`", row[0])
    }
    known = {name: row for name, row in ENDPOINTS.items() if row.ends}

    assert set(shown) == set(known)
    for endpoint, row in known.items():
        for ends in row.ends:
            if isinstance(ends, EndMarks):
                for mark in ends.names | {text.decode() for text in ends.texts}:
                    assert mark in shown[endpoint][2], (endpoint, mark)
            elif isinstance(ends, LastLine):
                value = ends.value
                said = str(value).lower() if isinstance(value, bool) else f'"{value}"'
                assert f'"{ends.member}": {said}' in shown[endpoint][2]


async def test_failures_written_by_hand_are_replayed() -> None:
    (written,) = [block for block in blocks("docs/streaming.md") if block.language == "json"]
    cassette = document.load(written.text.encode())
    assert all(isinstance(interaction, Interaction) for interaction in cassette.interactions)
    store = MemoryStore()
    await store.save("default", cassette)
    async with running_proxy(
        mode="replay", routes={"openai": "http://never"}, store=store
    ) as proxy:
        late, cut = [await proxy.ask(b"GET /openai/v1/models") for _ in range(2)]

    assert late.status == 504
    assert b"nothing came for a minute" in late.body
    assert (cut.status, cut.complete) == (200, False)
    assert (cut.value(b"content-length"), cut.body) == (b"1000", b'{"data": [{"id": "gpt')
