import orjson
import pytest

from tapeway.testing import StandIn
from tests.clients.programs.raw_socket import exchange
from tests.testing.wires import chat, post


@pytest.mark.parametrize(
    ("target", "body"),
    [
        ("/api/chat", chat("hello", model="llama3.2")),
        ("/api/generate", {"model": "llama3.2", "prompt": "hello"}),
    ],
)
async def test_a_stream_is_the_default_and_its_last_line_is_done(
    target: str, body: dict[str, object]
) -> None:
    async with StandIn() as upstream:
        wire = await post(upstream.url, target, body)
        lines = [orjson.loads(line) for line in wire.body.splitlines()]

        assert wire.values("content-type") == ["application/x-ndjson"]
        assert wire.body.endswith(b"\n")
        assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
        assert lines[-1]["eval_count"] > 1


async def test_a_whole_answer_is_one_compact_object_without_a_line_feed() -> None:
    async with StandIn() as upstream:
        wire = await post(upstream.url, "/api/chat", chat("hello", stream=False))

        assert wire.body == orjson.dumps(orjson.loads(wire.body))
        assert wire.values("content-type") == ["application/json; charset=utf-8"]
        assert wire.values("content-length") == [str(len(wire.body))]


async def test_answers_name_no_server() -> None:
    async with StandIn() as upstream:
        wire = await exchange(upstream.url, "GET", "/api/version")

        assert wire.values("server") == []
        assert wire.values("date") != []


async def test_an_error_is_a_plain_string() -> None:
    async with StandIn() as upstream:
        wire = await post(upstream.url, "/api/chat", chat("hello", model="error-404"))

        assert wire.status == 404
        assert orjson.loads(wire.body) == {"error": "model not found"}


async def test_the_older_embeddings_endpoint_gives_one_vector() -> None:
    async with StandIn() as upstream:
        old = await post(upstream.url, "/api/embeddings", {"model": "m", "prompt": "hello"})
        new = await post(upstream.url, "/api/embed", {"model": "m", "input": "hello"})

        assert orjson.loads(new.body)["embeddings"] == [orjson.loads(old.body)["embedding"]]


async def test_a_model_can_be_shown() -> None:
    async with StandIn() as upstream:
        wire = await post(upstream.url, "/api/show", {"model": "llama3.2"})

        assert "tools" in orjson.loads(wire.body)["capabilities"]
