"""OpenAI's bytes: what its clients read is checked elsewhere, here is what they do not look at."""

import base64
import struct

import orjson
import pytest

from tapeway.testing import StandIn
from tests.clients.programs.raw_socket import exchange
from tests.testing.wires import chat, fixed_state, post

PATH = "/v1/chat/completions"


async def test_a_whole_answer_is_indented_by_two_and_comes_in_two_chunks() -> None:
    async with StandIn(state=fixed_state()) as upstream:
        wire = await post(upstream.url, PATH, chat("hello"))

        assert wire.body.startswith(b'{\n  "id": "chatcmpl-0101')
        assert wire.body.endswith(b"\n}\n")
        assert b'"created": 1795264215,' in wire.body
        assert len(wire.chunks) == 2


async def test_header_fields_keep_their_case_and_repeats() -> None:
    async with StandIn(state=fixed_state()) as upstream:
        wire = await post(upstream.url, PATH, chat("hello"))
        names = [name for name, _ in wire.fields]

        assert names.count("set-cookie") == 2
        assert {"x-request-id", "openai-processing-ms", "CF-RAY", "Server"} <= set(names)
        assert wire.values("server") == ["cloudflare"]
        bot_cookie = wire.values("set-cookie")[0].partition(";")[0].removeprefix("__cf_bm=")
        assert len(bot_cookie) > 100


async def test_a_stream_has_data_lines_only_and_ends_in_done() -> None:
    async with StandIn() as upstream:
        wire = await post(upstream.url, PATH, chat("hello", stream=True))
        lines = [line for line in wire.body.split(b"\n") if line]

        assert wire.values("content-type") == ["text/event-stream; charset=utf-8"]
        assert all(line.startswith(b"data: ") for line in lines)
        assert wire.body.endswith(b"\n\ndata: [DONE]\n\n")


@pytest.mark.parametrize("asked", [True, False])
async def test_usage_comes_in_a_last_chunk_only_if_asked_for(asked: bool) -> None:
    async with StandIn() as upstream:
        more = {"stream": True, "stream_options": {"include_usage": asked}}
        wire = await post(upstream.url, PATH, chat("hello", **more))
        events = [orjson.loads(event[6:]) for event in wire.body.split(b"\n\n")[:-2]]

        assert ("usage" in events[0]) is asked
        assert (events[-1]["choices"] == []) is asked


async def test_several_choices_are_streamed_each_under_its_index() -> None:
    async with StandIn() as upstream:
        wire = await post(upstream.url, PATH, chat("hello", stream=True, n=2))
        events = [orjson.loads(event[6:]) for event in wire.body.split(b"\n\n")[:-2]]

        assert {event["choices"][0]["index"] for event in events} == {0, 1}


async def test_an_error_event_ends_a_stream_under_status_200() -> None:
    async with StandIn() as upstream:
        wire = await post(upstream.url, PATH, chat("hello", model="stream-error", stream=True))

        assert wire.status == 200
        assert orjson.loads(wire.body.split(b"\n\n")[-2][6:])["error"]["type"] == "server_error"
        assert b"[DONE]" not in wire.body


async def test_events_of_the_responses_api_are_named_numbered_and_end_in_completed() -> None:
    async with StandIn() as upstream:
        body = {"model": "gpt-4.1", "input": "hello", "stream": True}
        wire = await post(upstream.url, "/v1/responses", body)
        events = [event.split(b"\n") for event in wire.body.split(b"\n\n")[:-1]]
        data = [orjson.loads(line[1].removeprefix(b"data: ")) for line in events]

        assert [line[0] for line in events] == [b"event: " + d["type"].encode() for d in data]
        assert [d["sequence_number"] for d in data] == list(range(len(data)))
        assert events[-1][0] == b"event: response.completed"
        assert b"[DONE]" not in wire.body


async def test_an_unknown_previous_response_is_an_error() -> None:
    async with StandIn() as upstream:
        body = {"model": "gpt-4.1", "input": "hello", "previous_response_id": "resp_x"}
        wire = await post(upstream.url, "/v1/responses", body)

        assert wire.status == 400
        assert "resp_x" in orjson.loads(wire.body)["error"]["message"]


async def test_a_response_can_be_retrieved_by_its_id() -> None:
    async with StandIn() as upstream:
        made = await post(upstream.url, "/v1/responses", {"model": "gpt-4.1", "input": "hello"})
        again = await exchange(
            upstream.url, "GET", f"/v1/responses/{orjson.loads(made.body)['id']}"
        )
        gone = await exchange(upstream.url, "GET", "/v1/responses/resp_x")

        assert again.body == made.body
        assert gone.status == 404


async def test_base64_embeddings_are_the_same_numbers() -> None:
    async with StandIn() as upstream:
        body = {"model": "text-embedding-3-small", "input": ["a", [1, 2]], "dimensions": 4}
        plain = await post(upstream.url, "/v1/embeddings", body)
        packed = await post(upstream.url, "/v1/embeddings", body | {"encoding_format": "base64"})

        for one, other in zip(
            orjson.loads(plain.body)["data"], orjson.loads(packed.body)["data"], strict=True
        ):
            raw = base64.b64decode(other["embedding"])
            assert list(struct.unpack("<4f", raw)) == one["embedding"]


async def test_speech_is_no_text_in_any_encoding() -> None:
    async with StandIn() as upstream:
        wire = await post(upstream.url, "/v1/audio/speech", {"model": "tts-1", "input": "hello"})

        assert wire.values("content-type") == ["audio/mpeg"]
        with pytest.raises(UnicodeDecodeError):
            wire.body.decode()


async def test_an_upload_without_a_file_is_refused() -> None:
    async with StandIn() as upstream:
        wire = await post(upstream.url, "/v1/files", {})
        listed = await exchange(upstream.url, "GET", "/v1/files")

        assert wire.status == 400
        assert orjson.loads(listed.body)["data"] == []


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_an_unknown_file_is_not_found(method: str) -> None:
    async with StandIn() as upstream:
        wire = await exchange(upstream.url, method, "/v1/files/file-x")

        assert wire.status == 404


async def test_errors_have_their_shape_and_a_rate_limit_says_when_to_retry() -> None:
    async with StandIn() as upstream:
        for status in (400, 401, 404, 429, 500, 503):
            wire = await post(upstream.url, PATH, chat("hello", model=f"error-{status}"))
            error = orjson.loads(wire.body)["error"]

            assert wire.status == status
            assert set(error) == {"message", "type", "param", "code"}
            assert wire.values("retry-after") == (["1"] if status == 429 else [])


@pytest.mark.parametrize(
    "target",
    [
        "/openai/v1/chat/completions",
        "/api/v1/chat/completions",
        "/openai/deployments/gpt-4o/chat/completions?api-version=2024-10-21",
    ],
)
async def test_compatible_services_have_the_endpoint_below_their_own_prefix(target: str) -> None:
    async with StandIn() as upstream:
        assert (await post(upstream.url, target, chat("hello"))).status == 200


@pytest.mark.parametrize("model", ["crlf", "gpt-4o"])
async def test_openrouter_says_in_comments_that_it_is_still_there(model: str) -> None:
    async with StandIn() as upstream:
        wire = await post(
            upstream.url, "/api/v1/chat/completions", chat("hello", model=model, stream=True)
        )
        end = b"\r\n" if model == "crlf" else b"\n"

        assert wire.body.startswith(b": OPENROUTER PROCESSING" + end * 2)
        assert wire.body.endswith(b"data: [DONE]" + end * 2)
        assert wire.body.count(b"\n") == wire.body.count(end)


async def test_speech_comes_in_chunks_that_cut_its_frames() -> None:
    async with StandIn() as upstream:
        wire = await post(upstream.url, "/v1/audio/speech", {"input": "hello"})

        assert [len(chunk) for chunk in wire.chunks] == [999, 999, 999, 999, 8]


@pytest.mark.parametrize("stream", ["true", "false"])
async def test_a_transcription_depends_on_the_upload(stream: str) -> None:
    async def heard(sound: bytes) -> bytes:
        part = b'--x\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n'
        parts = part % (b"file", b'; filename="a.mp3"', sound) + part % (
            b"stream",
            b"",
            stream.encode(),
        )
        fields = (("Content-Type", "multipart/form-data; boundary=x"),)
        target = "/v1/audio/transcriptions"
        wire = await exchange(upstream.url, "POST", target, fields, parts + b"--x--\r\n")
        assert wire.status == 200
        assert ("event-stream" in wire.values("content-type")[0]) is (stream == "true")
        return wire.body

    async with StandIn() as upstream:
        assert await heard(b"one") == await heard(b"one") != await heard(b"two")


async def test_an_upgrade_elsewhere_is_an_unknown_path() -> None:
    upgrade = (("Connection", "Upgrade"), ("Upgrade", "websocket"))
    async with StandIn() as upstream:
        wire = await exchange(upstream.url, "GET", "/v1/chat/completions", upgrade)

        assert wire.status == 404
