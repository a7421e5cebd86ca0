"""Bedrock's bytes: frames with checksums, header fields and paths."""

import struct
import zlib
from urllib.parse import quote

import orjson
import pytest

from tapeway.testing import StandIn
from tapeway.testing.bedrock import event, frame
from tests.clients.programs.raw_socket import Wire
from tests.testing.wires import post

MODEL = "anthropic.claude-sonnet-5-v1:0"
SAID = [{"role": "user", "content": [{"text": "hello"}]}]


def kinds(body: bytes) -> list[bytes]:
    found = []
    while body:
        size, fields = struct.unpack(">II", body[:8])
        message, body = body[:size], body[size:]
        assert zlib.crc32(message[:8]) == int.from_bytes(message[8:12], "big")
        assert zlib.crc32(message[:-4]) == int.from_bytes(message[-4:], "big")
        found.append(message[12 : 12 + fields])
    return found


async def converse(upstream: StandIn, action: str, model: str = MODEL) -> Wire:
    return await post(upstream.url, f"/model/{quote(model)}/{action}", {"messages": SAID})


def test_a_frame_is_built_as_the_specification_shows_it() -> None:
    # The example of the AWS documentation: one string header and a JSON payload.
    message = frame({"event-type": "x"}, b"{}")

    assert message[:8] == struct.pack(">II", len(message), 15)
    assert message[12:27] == b"\x0aevent-type\x07\x00\x01x"
    assert message[27:29] == b"{}"
    assert kinds(message + event("chunk", b"{}"))


async def test_a_converse_stream_ends_in_metadata_behind_message_stop() -> None:
    async with StandIn() as upstream:
        wire = await converse(upstream, "converse-stream")
        found = kinds(wire.body)

        assert wire.values("content-type") == ["application/vnd.amazon.eventstream"]
        assert b"messageStart" in found[0]
        assert b"messageStop" in found[-2]
        assert b"metadata" in found[-1]


@pytest.mark.parametrize("model", [MODEL, "arn:aws:bedrock:us-east-1:1:inference-profile/m"])
async def test_a_model_may_hold_colons_and_slashes(model: str) -> None:
    async with StandIn() as upstream:
        encoded = quote(model, safe="")
        wire = await post(upstream.url, f"/model/{encoded}/converse", {"messages": SAID})

        assert orjson.loads(wire.body)["stopReason"] == "end_turn"
        assert upstream.requests[0].target == f"/model/{encoded}/converse"


async def test_an_error_names_its_type_in_a_field() -> None:
    async with StandIn(require_credential=True) as upstream:
        wire = await converse(upstream, "converse")

        assert wire.status == 403
        assert wire.values("x-amzn-errortype") == ["AccessDeniedException"]
        assert set(orjson.loads(wire.body)) == {"message"}


async def test_a_stream_that_fails_ends_in_an_exception_frame() -> None:
    async with StandIn() as upstream:
        wire = await converse(upstream, "converse-stream", "stream-error")

        assert b":exception-type\x07\x00\x19modelStreamErrorException" in kinds(wire.body)[-1]
        assert wire.complete


async def test_invoke_reports_its_tokens_in_header_fields() -> None:
    async with StandIn() as upstream:
        body = {"messages": [{"role": "user", "content": "hello"}]}
        wire = await post(upstream.url, f"/model/{MODEL}/invoke", body)

        (counted,) = wire.values("x-amzn-bedrock-output-token-count")
        assert int(counted) == orjson.loads(wire.body)["usage"]["output_tokens"]
