import orjson
import pytest

from tapeway.testing import StandIn
from tests.clients.programs.raw_socket import exchange
from tests.testing.wires import post

BODY = {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}
MODEL = "/v1beta/models/gemini-2.5-flash"


@pytest.mark.parametrize(
    "models",
    [
        "/v1beta/models",
        "/v1/models",
        "/v1/projects/p/locations/us-central1/publishers/google/models",
    ],
)
async def test_a_whole_answer_is_indented_by_two_on_every_path(models: str) -> None:
    async with StandIn() as upstream:
        wire = await post(upstream.url, f"{models}/gemini-2.5-flash:generateContent", BODY)

        assert wire.body.startswith(b'{\n  "candidates": [\n    {\n')
        assert wire.values("content-type") == ["application/json; charset=UTF-8"]
        assert wire.values("vary") == ["Origin", "X-Origin", "Referer"]


async def test_the_colon_may_come_percent_encoded() -> None:
    async with StandIn() as upstream:
        assert (await post(upstream.url, f"{MODEL}%3AgenerateContent", BODY)).status == 200


async def test_events_end_in_crlf_and_the_last_one_carries_the_reason() -> None:
    async with StandIn() as upstream:
        wire = await post(upstream.url, f"{MODEL}:streamGenerateContent?alt=sse", BODY)
        *events, rest = wire.body.split(b"\r\n\r\n")
        data = [orjson.loads(event.removeprefix(b"data: ")) for event in events]

        assert rest == b""
        assert b"\n" not in wire.body.replace(b"\r\n", b"")
        assert b'data: {"candidates": [' in wire.body
        assert [d for d in data if "finishReason" in d["candidates"][0]] == [data[-1]]


async def test_without_alt_sse_the_stream_is_a_json_array() -> None:
    async with StandIn() as upstream:
        wire = await post(upstream.url, f"{MODEL}:streamGenerateContent", BODY)
        items = orjson.loads(wire.body)

        assert wire.values("content-type") == ["application/json; charset=UTF-8"]
        assert wire.body.startswith(b'[{\n  "candidates"')
        assert wire.body.count(b"},\r\n{") == len(items) - 1
        assert len(wire.chunks) > 3


async def test_a_function_call_carries_an_id_and_a_thought_signature() -> None:
    tool = {"functionDeclarations": [{"name": "weather", "parameters": {"type": "OBJECT"}}]}
    async with StandIn() as upstream:
        wire = await post(upstream.url, f"{MODEL}:generateContent", BODY | {"tools": [tool]})
        (part,) = orjson.loads(wire.body)["candidates"][0]["content"]["parts"]

        assert part["functionCall"]["name"] == "weather"
        assert part["functionCall"]["id"]
        assert part["thoughtSignature"]


async def test_older_models_give_their_calls_no_ids() -> None:
    tool = {"functionDeclarations": [{"name": "weather", "parameters": {"type": "OBJECT"}}]}
    path = "/v1beta/models/gemini-2.0-flash:generateContent"
    async with StandIn() as upstream:
        wire = await post(upstream.url, path, BODY | {"tools": [tool]})
        (part,) = orjson.loads(wire.body)["candidates"][0]["content"]["parts"]

        assert part["functionCall"] == {"name": "weather", "args": {}}


async def test_one_embedding_is_an_object_and_many_are_a_list() -> None:
    content = {"content": {"parts": [{"text": "hello"}]}, "outputDimensionality": 4}
    async with StandIn() as upstream:
        one = await post(upstream.url, f"{MODEL}:embedContent", content)
        many = await post(
            upstream.url, f"{MODEL}:batchEmbedContents", {"requests": [content, content]}
        )
        values = orjson.loads(one.body)["embedding"]["values"]

        assert len(values) == 4
        assert orjson.loads(many.body)["embeddings"] == [{"values": values}] * 2


@pytest.mark.parametrize(
    ("status", "name"),
    [(400, "INVALID_ARGUMENT"), (404, "NOT_FOUND"), (429, "RESOURCE_EXHAUSTED")],
)
async def test_errors_have_a_number_and_a_name(status: int, name: str) -> None:
    async with StandIn() as upstream:
        target = f"/v1beta/models/error-{status}:generateContent"
        wire = await post(upstream.url, target, BODY)
        error = orjson.loads(wire.body)["error"]

        assert (wire.status, error["code"], error["status"]) == (status, status, name)


async def test_an_error_of_an_array_stream_stands_in_an_array() -> None:
    async with StandIn() as upstream:
        target = "/v1beta/models/error-500:streamGenerateContent"
        array = await post(upstream.url, target, BODY)
        event = await post(upstream.url, f"{target}?alt=sse", BODY)

        assert orjson.loads(array.body)[0]["error"]["status"] == "INTERNAL"
        assert orjson.loads(event.body)["error"]["status"] == "INTERNAL"


async def test_a_call_without_a_key_is_forbidden() -> None:
    async with StandIn(require_credential=True) as upstream:
        refused = await post(upstream.url, f"{MODEL}:generateContent", BODY)
        listed = await exchange(upstream.url, "GET", "/v1beta/models", (("x-goog-api-key", "k"),))

        assert refused.status == 403
        assert orjson.loads(listed.body)["models"][0]["name"] == "models/gemini-2.5-flash"
