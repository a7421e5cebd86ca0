"""Reading bodies that are too large to be read whole."""

from pathlib import Path
from typing import Any

from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import BodyFile, Request, Response, ResponseHead
from tapeway.inspection.exchange import ReadableExchange
from tapeway.inspection.reading import HEAD, MOST_READ


async def test_of_a_very_large_body_the_head_is_read(tmp_path: Path) -> None:
    file, size = tmp_path / "body", MOST_READ + 5
    file.write_bytes(b"a" * size)
    body = BodyFile(str(file), size, "")
    item = Interaction(
        0,
        Request("r", "POST", "/", body=b"{}"),
        Response(ResponseHead(200, headers=((b"content-type", b"text/plain"),)), file=body),
    )

    found: Any = (await ReadableExchange.of(item)).document

    shown = found["response"]["body"]
    assert (shown["kind"], shown["size"], shown["cut"]) == ("text", size, True)
    assert len(shown["text"]) == HEAD
    assert found["request"]["body"]["text"] == "{}"
