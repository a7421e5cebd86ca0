import orjson

from tapeway.testing import StandIn
from tests.clients.programs.raw_socket import exchange
from tests.testing.wires import chat, post

PATH = "/v1/messages"
VERSION = (("anthropic-version", "2023-06-01"),)


async def test_a_whole_answer_is_compact_and_has_a_length() -> None:
    async with StandIn() as upstream:
        wire = await post(upstream.url, PATH, chat("hello"), VERSION)

        assert wire.body == orjson.dumps(orjson.loads(wire.body))
        assert wire.values("content-length") == [str(len(wire.body))]
        assert wire.values("request-id")[0].startswith("req_011")
        assert wire.values("set-cookie")


async def test_a_stream_names_its_events_and_ends_in_message_stop() -> None:
    async with StandIn() as upstream:
        wire = await post(upstream.url, PATH, chat("hello", stream=True), VERSION)
        events = [event.split(b"\n") for event in wire.body.split(b"\n\n")[:-1]]
        names = [event[0].removeprefix(b"event: ").decode() for event in events]
        data = [orjson.loads(event[1].removeprefix(b"data: ")) for event in events]

        assert names == [one["type"] for one in data]
        assert names[:3] == ["message_start", "content_block_start", "ping"]
        assert names[-2:] == ["message_delta", "message_stop"]
        assert data[0]["message"]["usage"]["output_tokens"] == 1
        assert data[-2]["usage"]["output_tokens"] > 1


async def test_events_carry_blanks_that_no_parser_would_give_back() -> None:
    async with StandIn() as upstream:
        wire = await post(upstream.url, PATH, chat("hello", stream=True), VERSION)

        assert b" }\n\n" in wire.body
        assert b'data: {"type": "ping"}\n\n' in wire.body


async def test_tool_input_is_streamed_in_parts_after_an_empty_one() -> None:
    tool = {
        "name": "weather",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
    }
    async with StandIn() as upstream:
        body = chat("Málaga", stream=True, tools=[tool])
        wire = await post(upstream.url, PATH, body, VERSION)
        data = [orjson.loads(e.split(b"data: ")[1]) for e in wire.body.split(b"\n\n")[:-1]]
        parts = [d["delta"]["partial_json"] for d in data if d.get("index") == 1 and "delta" in d]

        assert parts[0] == ""
        assert len(parts) > 2
        assert "".join(parts) == '{"city":"Málaga"}'
        assert data[-2]["delta"]["stop_reason"] == "tool_use"


async def test_an_error_event_ends_a_stream_under_status_200() -> None:
    async with StandIn() as upstream:
        body = chat("hello", model="stream-error", stream=True)
        wire = await post(upstream.url, PATH, body, VERSION)

        assert wire.status == 200
        assert wire.body.split(b"\n\n")[-2].startswith(b"event: error\n")
        assert b"message_stop" not in wire.body


async def test_errors_name_the_request_that_failed() -> None:
    async with StandIn() as upstream:
        kinds = {400: "invalid_request_error", 429: "rate_limit_error", 529: "overloaded_error"}
        for status, kind in kinds.items():
            wire = await post(upstream.url, PATH, chat("a", model=f"error-{status}"), VERSION)
            body = orjson.loads(wire.body)

            assert (wire.status, body["type"], body["error"]["type"]) == (status, "error", kind)
            assert wire.values("request-id") == [body["request_id"]]
            assert wire.values("retry-after") == (["1"] if status == 429 else [])


async def test_the_model_list_is_that_of_the_client_that_asks() -> None:
    async with StandIn() as upstream:
        ours = await exchange(upstream.url, "GET", "/v1/models", VERSION)
        other = await exchange(upstream.url, "GET", "/v1/models")

        assert "has_more" in orjson.loads(ours.body)
        assert orjson.loads(other.body)["object"] == "list"
