import gzip
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.model.messages import Headers, Request
from tapeway.providers.api_call import ApiCall, calls_model, describe_call
from tapeway.providers.endpoints import endpoint_named

JSON: Headers = ((b"Content-Type", b"application/json"),)
BEDROCK_ID = "anthropic.claude-3-5-sonnet-20241022-v2%3A0"


def make_request(
    target: str,
    fields: object = None,
    *,
    route: str = "default",
    base: str = "",
    headers: Headers = JSON,
) -> Request:
    body = b"" if fields is None else json.dumps(fields).encode()
    return Request(route, "POST", target, headers, body, base)


@pytest.mark.parametrize(
    ("route", "target", "fields", "call"),
    [
        (
            "openai",
            "/v1/chat/completions",
            {"model": "gpt-4o", "stream": True},
            ApiCall("openai", "chat.completions", "gpt-4o", stream=True),
        ),
        (
            "openai",
            "/v1/responses",
            {"model": "gpt-5"},
            ApiCall("openai", "responses", "gpt-5", stream=False),
        ),
        (
            "openai",
            "/v1/embeddings",
            {"model": "te3"},
            ApiCall("openai", "embeddings", "te3", stream=False),
        ),
        (
            "openai",
            "/v1/completions",
            {"model": "i", "stream": False},
            ApiCall("openai", "completions", "i", stream=False),
        ),
        (
            "openai",
            "/v1/realtime?model=gpt-realtime&a=b",
            None,
            ApiCall("openai", "realtime", "gpt-realtime", stream=False),
        ),
        ("openai", "/v1/realtime", None, ApiCall("openai", "realtime", None, stream=False)),
        (
            "gemini",
            "//ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent?key=k",
            {"setup": {"model": "models/gemini-live-2.5"}},
            ApiCall("gemini", "BidiGenerateContent", "gemini-live-2.5", stream=True),
        ),
        (
            "default",
            "/ws/google.cloud.aiplatform.v1.LlmBidiService/BidiGenerateContent",
            {"setup": {"model": "projects/p/locations/l/publishers/google/models/m"}},
            ApiCall("vertex", "BidiGenerateContent", "m", stream=True),
        ),
        (
            "default",
            "/ws/google.ai.generativelanguage.v1alpha.GenerativeService"
            ".BidiGenerateContentConstrained",
            {"setup": []},
            ApiCall("gemini", "BidiGenerateContent", None, stream=True),
        ),
        ("openai", "/v1/files", None, ApiCall("openai", "files", None, stream=False)),
        ("openai", "/v1/threads/t/messages", {}, ApiCall("openai", "threads", None, stream=False)),
        (
            "openai",
            "/v1/models/ft:gpt-4o:org",
            None,
            ApiCall("openai", "models", None, stream=False),
        ),
        (
            "openai",
            "/v1/images/generations",
            {"model": "gpt-image"},
            ApiCall("openai", "images.generations", "gpt-image", stream=False),
        ),
        (
            "groq",
            "/openai/v1/chat/completions",
            {"model": "llama"},
            ApiCall("groq", "chat.completions", "llama", stream=False),
        ),
        (
            "openrouter",
            "/api/v1/chat/completions",
            {"model": "x/y"},
            ApiCall("openrouter", "chat.completions", "x/y", stream=False),
        ),
        (
            "perplexity",
            "/chat/completions",
            {"model": "sonar"},
            ApiCall("perplexity", "chat.completions", "sonar", stream=False),
        ),
        (
            "azure",
            "/openai/deployments/my%20gpt/chat/completions?api-version=1",
            {"stream": True},
            ApiCall("azure", "chat.completions", "my gpt", stream=True),
        ),
        (
            "azure",
            "/openai/responses?api-version=1",
            {"model": "gpt"},
            ApiCall("azure", "responses", "gpt", stream=False),
        ),
        (
            "anthropic",
            "/v1/messages?beta=true",
            {"model": "claude", "stream": True},
            ApiCall("anthropic", "messages", "claude", stream=True),
        ),
        (
            "gemini",
            "/v1beta/models/gemini-2.5-flash:generateContent",
            {},
            ApiCall("gemini", "generateContent", "gemini-2.5-flash", stream=False),
        ),
        (
            "gemini",
            "/v1/models/gemini-2.5-flash%3AstreamGenerateContent?alt=sse",
            {},
            ApiCall("gemini", "streamGenerateContent", "gemini-2.5-flash", stream=True),
        ),
        (
            "gemini",
            "/v1beta/models/e:embedContent",
            {},
            ApiCall("gemini", "embedContent", "e", stream=False),
        ),
        (
            "gemini",
            "/v1beta/openai/chat/completions",
            {"model": "g"},
            ApiCall("gemini", "chat.completions", "g", stream=False),
        ),
        (
            "vertex",
            "/v1/projects/p/locations/l/publishers/anthropic/models/claude@1:streamRawPredict",
            {},
            ApiCall("vertex", "streamRawPredict", "claude@1", stream=True),
        ),
        (
            "bedrock",
            f"/model/{BEDROCK_ID}/converse-stream",
            {},
            ApiCall(
                "bedrock",
                "converse-stream",
                "anthropic.claude-3-5-sonnet-20241022-v2:0",
                stream=True,
            ),
        ),
        ("bedrock", "/model/m/invoke", {}, ApiCall("bedrock", "invoke", "m", stream=False)),
        (
            "cohere",
            "/v2/chat",
            {"model": "command"},
            ApiCall("cohere", "chat", "command", stream=False),
        ),
        ("ollama", "/api/chat", {"model": "l"}, ApiCall("ollama", "api.chat", "l", stream=True)),
        (
            "ollama",
            "/api/chat",
            {"model": "l", "stream": False},
            ApiCall("ollama", "api.chat", "l", stream=False),
        ),
        ("ollama", "/api/embed", {"model": "l"}, ApiCall("ollama", "api.embed", "l", stream=False)),
        (
            "ollama",
            "/v1/chat/completions",
            {"model": "l"},
            ApiCall("ollama", "chat.completions", "l", stream=False),
        ),
    ],
)
def test_a_call_on_a_built_in_route_is_named_as_its_provider_does(
    route: str, target: str, fields: object, call: ApiCall
) -> None:
    assert describe_call(route, make_request(target, fields, route=route)) == call


@pytest.mark.parametrize(
    ("base", "target", "provider", "endpoint"),
    [
        ("http://127.0.0.1:9", "/v1/chat/completions", "openai", "chat.completions"),
        ("http://user:pw@stand-in:9/v1", "/chat/completions", "openai", "chat.completions"),
        ("", "/v1/messages", "anthropic", "messages"),
        ("", "/api/generate", "ollama", "api.generate"),
        ("", "/v1beta/models/m:generateContent", "gemini", "generateContent"),
        ("http://gateway/inference", "/chat/completions", "openai", "chat.completions"),
        ("http://gateway/llm", "/chat/completions", "openai", "chat.completions"),
        ("http://gateway/api/v3", "/embeddings", "openai", "embeddings"),
        ("http://gateway/openai/v1", "/responses", "openai", "responses"),
        ("", "/openai/deployments/d/chat/completions", "openai", "chat.completions"),
        ("http://gateway/claude", "/v1/messages", "anthropic", "messages"),
        ("http://gateway", "/v2/chat", "cohere", "chat"),
        ("http://gateway", "/model/m/converse-stream", "bedrock", "converse-stream"),
        ("http://gateway/g", "/v1beta/models/m:generateContent", "gemini", "generateContent"),
        ("http://gateway/ollama", "/api/chat", "ollama", "api.chat"),
        ("http://gateway/g", "/v1/models/m:embedContent", "gemini", "embedContent"),
        ("http://gateway/v1", "/images/generations", "openai", "images.generations"),
        ("", "/v1/messages/count_tokens", "anthropic", "messages.count_tokens"),
        ("http://gateway", "/v1/rerank", "cohere", "rerank"),
    ],
)
def test_a_stand_in_behind_a_default_route_is_recognised_by_its_path(
    base: str, target: str, provider: str, endpoint: str
) -> None:
    call = describe_call("default", make_request(target, {}, base=base))

    assert call is not None
    assert (call.provider, call.endpoint) == (provider, endpoint)


@pytest.mark.parametrize(
    "target",
    [
        "/users/1",
        "/",
        "/v1/orders",
        "/api/users",
        "/chat",
        "/me/messages",
        "/responses",
        "/model/m",
    ],
)
def test_a_path_of_no_provider_is_no_call(target: str) -> None:
    assert describe_call("default", make_request(target, {"model": "m"})) is None


@pytest.mark.parametrize("target", ["/v1/files%2Fx", "/v1/", "/", "/v1/5"])
def test_a_path_whose_endpoint_cannot_be_named_is_no_call(target: str) -> None:
    assert describe_call("openai", make_request(target, {}, route="openai")) is None


def test_the_model_of_an_upload_is_read_from_its_form() -> None:
    content_type = (b"content-type", b"multipart/form-data; boundary=b")
    body = (
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n\x00\xff\r\n'
        b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper-1\r\n--b--\r\n'
    )
    request = Request("openai", "POST", "/v1/audio/transcriptions", (content_type,), body)

    call = ApiCall("openai", "audio.transcriptions", "whisper-1", stream=False)
    assert describe_call("openai", request) == call


def test_the_model_of_a_compressed_request_is_found() -> None:
    headers: Headers = (*JSON, (b"Content-Encoding", b"gzip"))
    body = gzip.compress(b'{"model":"gpt-4o"}')
    request = Request("openai", "POST", "/v1/chat/completions", headers, body)

    call = describe_call("openai", request)

    assert call is not None
    assert call.model == "gpt-4o"


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b'"x"', b"\xff", b'{"model":5}', b'{"stream":"yes"}']
)
def test_an_unexpected_body_names_no_model(body: bytes) -> None:
    request = Request("openai", "POST", "/v1/chat/completions", JSON, body)

    call = ApiCall("openai", "chat.completions", None, stream=False)
    assert describe_call("openai", request) == call


@given(st.text(alphabet="/v1apimodelchat:%3A@?.-\n", max_size=60), st.binary(max_size=40))
def test_any_target_and_body_can_be_described(target: str, body: bytes) -> None:
    for route in ("default", "openai", "gemini", "bedrock"):
        call = describe_call(route, Request(route, "POST", "/" + target, JSON, body))
        assert call is None or call.endpoint


@pytest.mark.parametrize(
    ("route", "target"),
    [
        ("openai", "/v1/chat/completions"),
        ("gateway", "/llm/chat/completions"),
        ("gateway", "/v1/embeddings?api-version=1"),
        ("gateway", "/v1/audio/speech"),
        ("gateway", "/v1/moderations"),
        ("gateway", "/v1/messages/count_tokens"),
        ("gateway", "/v1/responses/input_tokens"),
        ("gateway", "/v2/rerank"),
        ("gateway", "/v1beta/models/m:countTokens"),
        ("azure", "/openai/deployments/d/images/generations"),
        ("vertex", "/v1/projects/p/locations/l/publishers/google/models/m:predict"),
        ("bedrock", "/model/m/invoke-with-response-stream"),
        ("ollama", "/api/embed"),
    ],
)
def test_a_call_to_a_model_is_known_by_its_path_on_any_route(route: str, target: str) -> None:
    assert _calls_model(route, target)


@pytest.mark.parametrize(
    ("route", "target"),
    [
        ("openai", "/v1/batches"),
        ("openai", "/v1/files"),
        ("openai", "/v1/fine_tuning/jobs"),
        ("openai", "/v1/responses/r/cancel"),
        ("openai", "/v1/threads/t/messages"),
        ("openai", "/v1/vector_stores"),
        ("anthropic", "/v1/messages/batches"),
        ("gateway", "/v1/models/m:predictLongRunning"),
        ("gateway", "/channels/1/messages"),
        ("gateway", "/rerank"),
        ("gateway", "/v1/videos"),
    ],
)
def test_a_job_or_a_write_is_no_call_to_a_model(route: str, target: str) -> None:
    assert not _calls_model(route, target)


def test_a_turn_of_the_responses_api_over_websocket_calls_a_model() -> None:
    turn = replace(make_request("/v1/responses", {"type": "response.create"}), method="WEBSOCKET")

    assert calls_model(turn)
    assert not calls_model(replace(turn, target="/v1/realtime?model=m"))


def test_only_a_post_calls_a_model() -> None:
    assert not calls_model(Request("openai", "GET", "/v1/chat/completions", JSON, b""))


@pytest.mark.parametrize(
    "fields",
    [
        {"background": True},
        {"conversation": "conv_1"},
        {"container": "container_1"},
        {"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]},
    ],
)
@pytest.mark.parametrize("coding", [b"", b"gzip"])
def test_a_call_that_changes_something_at_the_service_is_no_call_to_a_model_alone(
    fields: dict[str, object], coding: bytes
) -> None:
    body = json.dumps({"model": "m", "input": "hi"} | fields).encode()
    headers = (*JSON, (b"Content-Encoding", coding)) if coding else JSON
    request = Request(
        "openai", "POST", "/v1/responses", headers, gzip.compress(body) if coding else body
    )

    assert not calls_model(request)


def test_a_tool_that_speaks_of_containers_leaves_a_call_to_a_model_one() -> None:
    tool = {"parameters": {"properties": {"container": {"type": "string"}}}, "name": "run"}
    fields = {"background": False, "conversation": None, "tools": [tool]}

    assert calls_model(make_request("/v1/responses", fields, route="openai"))


def test_counting_tokens_samples_nothing() -> None:
    counted, written = [
        endpoint_named(name).samples for name in ("messages.count_tokens", "messages")
    ]

    assert (counted, written) == (False, True)


def _calls_model(route: str, target: str) -> bool:
    return calls_model(make_request(target, {"model": "m"}, route=route))
