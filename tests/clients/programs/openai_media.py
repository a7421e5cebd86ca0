"""What the tests do with the openai package besides text: pictures, moderation and batches."""

import base64
import json
from typing import Any

from tests.clients.programs.openai_sdk import with_async, with_sync
from tests.clients.programs.target import Run, collect, dumped, settle

_PICTURE = b"\x89PNG\r\n\x1a\n"


async def images(client: Any) -> list[object]:
    made = await settle(client.images.generate(model="gpt-image-1", prompt="A fox", n=2))
    pictures = [base64.b64decode(picture.b64_json) for picture in made.data]
    assert all(picture.startswith(_PICTURE) for picture in pictures)
    assert pictures[0] != pictures[1]
    file = ("fox.png", pictures[0], "image/png")
    changed = await settle(client.images.edit(model="gpt-image-1", image=file, prompt="A red fox"))
    assert base64.b64decode(changed.data[0].b64_json) not in pictures
    return dumped(made, changed)


async def image_stream(client: Any) -> list[object]:
    events = await collect(
        client.images.generate(model="gpt-image-1", prompt="A fox", stream=True, partial_images=2)
    )
    assert [event.type.rpartition(".")[2] for event in events] == [
        *["partial_image"] * 2,
        "completed",
    ]
    return dumped(*events)


async def moderations(client: Any) -> list[object]:
    said = await settle(client.moderations.create(input=["a fox", "such violence"]))
    assert [result.flagged for result in said.results] == [False, True]
    assert said.results[1].categories.violence
    parts = [
        {"type": "text", "text": "a fox"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
    ]
    seen = await settle(client.moderations.create(model="omni-moderation-latest", input=parts))
    assert seen.results[0].category_applied_input_types.violence == ["text", "image"]
    return dumped(said, seen)


async def batch(client: Any) -> list[object]:
    lines = [
        {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body}
        for custom_id, body in (
            ("one", _chat("gpt-4o", "Name a fox")),
            ("two", _chat("error-400", "")),
        )
    ]
    content = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    file = await settle(client.files.create(file=("calls.jsonl", content), purpose="batch"))
    made = await settle(
        client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
    )
    asked = [await settle(client.batches.retrieve(made.id)) for _ in range(3)]
    assert [answer.status for answer in (made, *asked)] == [
        *("validating", "in_progress", "completed", "completed")
    ]
    counts = asked[-1].request_counts
    assert (counts.total, counts.completed, counts.failed) == (2, 1, 1)
    output = (await settle(client.files.content(asked[-1].output_file_id))).content
    errors = (await settle(client.files.content(asked[-1].error_file_id))).content
    assert json.loads(output)["custom_id"] == "one"
    text = json.loads(output)["response"]["body"]["choices"][0]["message"]["content"]
    assert "Name a fox" in text
    assert json.loads(errors)["response"]["status_code"] == 400
    return [*dumped(file, made, *asked), output, errors]


async def cancelled_batch(client: Any) -> list[object]:
    file = await settle(client.files.create(file=("none.jsonl", b""), purpose="batch"))
    made = await settle(
        client.batches.create(
            input_file_id=file.id, endpoint="/v1/responses", completion_window="24h"
        )
    )
    stopped = await settle(client.batches.cancel(made.id))
    later = await settle(client.batches.retrieve(made.id))
    assert (stopped.status, later.status) == ("cancelling", "cancelled")
    listed = await settle(client.batches.list())
    assert listed.data[0].id == made.id
    return dumped(file, made, stopped, later, listed.data[0])


def _chat(model: str, text: str) -> dict[str, object]:
    return {"model": model, "messages": [{"role": "user", "content": text}]}


_STEPS = (images, image_stream, moderations, batch, cancelled_batch)
RUNS: dict[str, Run] = {f"sync_{step.__name__}": with_sync(step) for step in _STEPS} | {
    f"async_{step.__name__}": with_async(step) for step in _STEPS
}
