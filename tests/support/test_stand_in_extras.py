"""The endpoints that tests add to the stand-in: what their clients do not look at."""

import anthropic
import orjson

from tapeway.testing.request import JsonObject
from tests.clients.programs.raw_socket import exchange
from tests.support.stand_in_extras import WiderStandIn
from tests.testing.wires import fixed_state, post


async def test_a_batch_or_picture_of_nothing_is_an_error() -> None:
    async with WiderStandIn() as upstream:
        batch = await post(upstream.url, "/v1/batches", {"input_file_id": "file-x"})
        picture = await post(upstream.url, "/v1/images/edits", {"prompt": "A fox"})
        unknown = await exchange(upstream.url, "GET", "/v1/batches/batch_x")

        assert (batch.status, picture.status, unknown.status) == (400, 400, 404)


async def test_a_batch_that_is_complete_cannot_be_cancelled() -> None:
    state = fixed_state()
    state.files["file-x"] = b""
    async with WiderStandIn(state=state) as upstream:
        made = await post(upstream.url, "/v1/batches", {"input_file_id": "file-x"})
        path = f"/v1/batches/{orjson.loads(made.body)['id']}"
        for _ in range(2):
            await exchange(upstream.url, "GET", path)
        refused = await post(upstream.url, f"{path}/cancel", {})

        assert refused.status == 400
        assert "completed" in orjson.loads(refused.body)["error"]["message"]


async def test_a_stream_of_pictures_breaks_off_where_the_model_s_name_says_so() -> None:
    async with WiderStandIn() as upstream:
        body = {"model": "unmarked", "prompt": "A fox", "stream": True, "partial_images": 1}
        wire = await post(upstream.url, "/v1/images/generations", body)

        assert b"partial_image" in wire.body
        assert b"completed" not in wire.body


async def test_the_client_package_follows_the_address_of_a_batch_s_results() -> None:
    call: JsonObject = {"model": "m", "messages": [{"role": "user", "content": "Name a fox"}]}
    params = [{"custom_id": name, "params": {**call, "stream": True}} for name in "ab"]
    async with (
        WiderStandIn() as upstream,
        anthropic.AsyncAnthropic(base_url=upstream.url, api_key="k", max_retries=0) as client,
    ):
        made = await client.messages.batches.create(requests=params)  # type: ignore[arg-type]
        for _ in range(2):
            await client.messages.batches.retrieve(made.id)
        results = [result async for result in await client.messages.batches.results(made.id)]

    assert [result.custom_id for result in results] == ["a", "b"]
    assert [result.result.type for result in results] == ["succeeded"] * 2


async def test_a_batch_of_nothing_of_one_name_twice_and_one_that_has_ended_are_refused() -> None:
    twice = [{"custom_id": "a", "params": {}}] * 2
    async with WiderStandIn() as upstream:
        path = "/v1/messages/batches"
        empty = await post(upstream.url, path, {"requests": []})
        doubled = await post(upstream.url, path, {"requests": twice})
        made = orjson.loads((await post(upstream.url, path, {"requests": twice[:1]})).body)
        early = await exchange(upstream.url, "GET", f"{path}/{made['id']}/results")
        for _ in range(2):
            await exchange(upstream.url, "GET", f"{path}/{made['id']}")
        late = await post(upstream.url, f"{path}/{made['id']}/cancel", {})
        unknown = await exchange(upstream.url, "GET", f"{path}/msgbatch_x")

    assert (empty.status, doubled.status, early.status) == (400, 400, 404)
    assert (late.status, unknown.status) == (400, 404)
    assert orjson.loads(unknown.body)["error"]["type"] == "not_found_error"
