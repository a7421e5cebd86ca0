import gzip
import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.json_text import Json
from tapeway.core.model.messages import Response, ResponseHead
from tapeway.providers.api_call import ApiCall
from tapeway.providers.usage import Usage, token_usage

SSE = b"text/event-stream; charset=utf-8"
JSON = b"application/json"
NDJSON = b"application/x-ndjson"


def make_call(endpoint: str) -> ApiCall:
    return ApiCall("openai", endpoint, "m", stream=False)


def make_response(
    content_type: bytes, pieces: Sequence[bytes], coding: bytes | None = None
) -> Response:
    headers = [(b"content-type", content_type)]
    if coding is not None:
        headers.append((b"content-encoding", coding))
    return Response(ResponseHead(200, headers=tuple(headers)), b"".join(pieces))


def sse(values: Sequence[Json], end: bytes = b"\n") -> bytes:
    texts = [json.dumps(value).encode() for value in values]
    return b"".join([b": note" + end + b"data: " + text + end + end for text in texts])


def of(endpoint: str, body: bytes, content_type: bytes = JSON) -> Usage | None:
    return token_usage(make_call(endpoint), make_response(content_type, [body]))


ANTHROPIC_STREAM: list[Json] = [
    {
        "type": "message_start",
        "message": {
            "usage": {
                "input_tokens": 10,
                "cache_creation_input_tokens": 2,
                "cache_read_input_tokens": 3,
                "output_tokens": 1,
            }
        },
    },
    {"type": "ping"},
    {
        "type": "content_block_delta",
        "delta": {"type": "text_delta", "text": "usage of input_tokens"},
    },
    {"type": "message_delta", "usage": {"output_tokens": 12}},
    {"type": "message_stop"},
]
GEMINI_STREAM: list[Json] = [
    {"usageMetadata": {"promptTokenCount": 4, "totalTokenCount": 4}},
    {
        "usageMetadata": {
            "promptTokenCount": 4,
            "candidatesTokenCount": 5,
            "thoughtsTokenCount": 6,
            "totalTokenCount": 15,
        }
    },
]


@pytest.mark.parametrize(
    ("endpoint", "answer", "tokens"),
    [
        (
            "chat.completions",
            {"usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}},
            Usage(1, 2, 3),
        ),
        (
            "chat.completions",
            {"usage": {"prompt_tokens": 1, "completion_tokens": 2}},
            Usage(1, 2, 3),
        ),
        ("embeddings", {"usage": {"prompt_tokens": 8, "total_tokens": 8}}, Usage(8, 0, 8)),
        ("embeddings", {"usage": {"total_tokens": 8}}, Usage(8, 0, 8)),
        (
            "responses",
            {"usage": {"input_tokens": 5, "output_tokens": 6, "total_tokens": 11}},
            Usage(5, 6, 11),
        ),
        (
            "messages",
            {
                "usage": {
                    "input_tokens": 10,
                    "cache_creation_input_tokens": 2,
                    "cache_read_input_tokens": None,
                    "output_tokens": 4,
                }
            },
            Usage(12, 4, 16),
        ),
        (
            "generateContent",
            {
                "usageMetadata": {
                    "promptTokenCount": 7,
                    "toolUsePromptTokenCount": 1,
                    "candidatesTokenCount": 2,
                    "thoughtsTokenCount": 3,
                    "totalTokenCount": 13,
                }
            },
            Usage(8, 5, 13),
        ),
        ("embedContent", {"usageMetadata": {"promptTokenCount": 7}}, Usage(7, 0, 7)),
        ("api.chat", {"done": True, "prompt_eval_count": 26, "eval_count": 3}, Usage(26, 3, 29)),
        ("api.embed", {"embeddings": [[0.5]], "prompt_eval_count": 8}, Usage(8, 0, 8)),
        (
            "converse",
            {"usage": {"inputTokens": 3, "outputTokens": 4, "totalTokens": 7}},
            Usage(3, 4, 7),
        ),
        ("chat", {"usage": {"tokens": {"input_tokens": 3, "output_tokens": 4}}}, Usage(3, 4, 7)),
    ],
)
def test_the_tokens_of_a_plain_answer_are_read_in_openai_s_terms(
    endpoint: str, answer: Json, tokens: Usage
) -> None:
    assert of(endpoint, json.dumps(answer).encode()) == tokens


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize(
    ("endpoint", "values", "tokens"),
    [
        (
            "chat.completions",
            [
                {"choices": [{"delta": {"content": "a"}}], "usage": None},
                {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}},
            ],
            Usage(1, 2, 3),
        ),
        (
            "chat.completions",
            [{"x_groq": {"usage": {"prompt_tokens": 1, "completion_tokens": 2}}}],
            Usage(1, 2, 3),
        ),
        (
            "responses",
            [
                {"type": "response.created", "response": {"usage": None}},
                {
                    "type": "response.completed",
                    "response": {"usage": {"input_tokens": 1, "output_tokens": 2}},
                },
            ],
            Usage(1, 2, 3),
        ),
        ("messages", ANTHROPIC_STREAM, Usage(15, 12, 27)),
        ("streamGenerateContent", GEMINI_STREAM, Usage(4, 11, 15)),
    ],
)
def test_a_stream_s_last_counts_win(
    end: bytes, endpoint: str, values: list[Json], tokens: Usage
) -> None:
    body = sse(values, end) + b"data: [DONE]" + end + end

    assert of(endpoint, body, SSE) == tokens


def test_gemini_s_stream_as_one_array_is_read() -> None:
    body = b"[" + b",\r\n".join([json.dumps(value).encode() for value in GEMINI_STREAM]) + b"]"

    assert of("streamGenerateContent", body) == Usage(4, 11, 15)


def test_ollama_s_last_line_holds_the_counts() -> None:
    body = b'{"message":{"content":"a"}}\n{"done":true,"prompt_eval_count":2,"eval_count":3}\n'

    assert of("api.chat", body, NDJSON) == Usage(2, 3, 5)


def test_counts_spread_over_data_lines_of_one_event_are_joined() -> None:
    body = b'data: {"usage": {"prompt_tokens": 1,\ndata: "completion_tokens": 2}}\n\n'

    assert of("chat.completions", body, SSE) == Usage(1, 2, 3)


@given(st.data())
def test_chunk_boundaries_do_not_matter(data: st.DataObject) -> None:
    body = sse(ANTHROPIC_STREAM, b"\r\n")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    pieces = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]

    assert token_usage(make_call("messages"), make_response(SSE, pieces)) == Usage(15, 12, 27)


def test_a_compressed_answer_is_counted() -> None:
    response = make_response(SSE, [gzip.compress(sse(ANTHROPIC_STREAM))], b"gzip")

    assert token_usage(make_call("messages"), response) == Usage(15, 12, 27)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"prompt_tokens",
        b'{"usage":{"prompt_tokens":',
        b'{"usage":null,"x":"prompt_tokens"}',
        b'{"usage":[],"x":"prompt_tokens"}',
        b'{"usage":{"prompt_tokens":"1","completion_tokens":-1,"total_tokens":true}}',
        b'{"usage":{"prompt_tokens":1.5}}',
        b'["prompt_tokens"]',
        b'"prompt_tokens"',
        b"\xff\xfe prompt_tokens",
        b"[" * 100_000 + b'"prompt_tokens"',
    ],
)
@pytest.mark.parametrize("content_type", [JSON, SSE, NDJSON, b""])
def test_a_body_without_readable_counts_has_no_usage(body: bytes, content_type: bytes) -> None:
    assert of("chat.completions", body, content_type) is None


@pytest.mark.parametrize("endpoint", ["files", "models", "countTokens", "api.tags"])
def test_a_call_that_is_not_charged_has_no_usage(endpoint: str) -> None:
    assert of(endpoint, b'{"usage":{"prompt_tokens":1,"input_tokens":1}}') is None


@given(st.binary(max_size=200), st.sampled_from([JSON, SSE, NDJSON]))
def test_any_body_can_be_counted(body: bytes, content_type: bytes) -> None:
    assert of("messages", body, content_type) is None


@pytest.mark.parametrize(
    "body",
    [
        b'{"usage": {"prompt_tokens": 1, "completion_tokens": 2}}',
        b'[{"usage": {"prompt_tokens": 1}}]',
        b'{"usage": {"prompt\\u005ftokens": 1}}',
        b"null",
    ],
)
def test_a_body_that_was_read_is_counted_as_any_other(body: bytes) -> None:
    call, response = make_call("chat.completions"), make_response(JSON, [body])

    assert token_usage(call, response, json.loads(body)) == token_usage(call, response)


def test_the_counts_of_a_realtime_session_are_those_of_all_its_answers() -> None:
    def done(given: int, got: int) -> bytes:
        counts = {"total_tokens": given + got, "input_tokens": given, "output_tokens": got}
        event = {"type": "response.done", "response": {"usage": counts}}
        return json.dumps({"service": event}).encode() + b"\n"

    begun = b'{"service":{"type":"response.created","response":{"usage":null}}}\n'
    said = b'{"client":{"type":"response.create","response":{"usage":{"input_tokens":9}}}}\n'
    body = begun + done(3, 10) + said + begun + done(20, 30)

    assert of("realtime", body, NDJSON) == Usage(23, 40, 63)
    assert of("realtime", begun, NDJSON) is None


@pytest.mark.parametrize("name", [b"service", b"service_binary_json"])
def test_the_counts_of_a_gemini_live_session_are_those_of_all_its_answers(name: bytes) -> None:
    def counted(given: int, got: int) -> bytes:
        counts = {
            "promptTokenCount": given,
            "responseTokenCount": got,
            "totalTokenCount": given + got,
        }
        return b'{"%b":%b}\n' % (name, json.dumps({"usageMetadata": counts}).encode())

    said = b'{"client":{"clientContent":{"turnComplete":true}}}\n'
    body = said + counted(3, 10) + said + counted(20, 30)

    assert of("BidiGenerateContent", body, NDJSON) == Usage(23, 40, 63)
    assert of("BidiGenerateContent", said, NDJSON) is None
