"""Reading bodies that are too large to be read whole."""

import base64
from pathlib import Path
from typing import Any

from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import BodyFile, Request, Response, ResponseHead
from tapeway.inspection.exchange import ReadableExchange, messages_part
from tapeway.inspection.reading import HEAD, MOST_READ
from tests.conversations.recorded_calls import chat
from tests.inspection.test_reading import PNG


def test_pictures_of_long_requests_are_shown_those_of_the_last_messages_first() -> None:
    pictures = [base64.b64encode(PNG + bytes([at]) * 1_200_000).decode() for at in range(3)]
    urls = [{"url": f"data:image/png;base64,{picture}"} for picture in pictures]
    asked = [{"role": "user", "content": [{"type": "image_url", "image_url": u}]} for u in urls]

    shown: Any = messages_part(chat(0, asked, "ok"))

    assert [len(message["parts"][0]["data"]) > 1_000_000 for message in shown] == [
        False,
        True,
        True,
    ]


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
