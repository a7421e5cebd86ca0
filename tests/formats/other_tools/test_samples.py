"""How each tool's own way of writing is read, and what is said about the rest."""

import json
from typing import Any

import pytest

from tapeway.core.cassette.cursors import repeats_of_meta
from tapeway.formats import registry
from tapeway.formats.errors import FormatFault
from tapeway.formats.other_tools import azure_test_proxy, llama_stack, nock, ruby_vcr, test_server
from tapeway.formats.other_tools.stubs import hoverfly
from tests.formats.other_tools import samples
from tests.formats.other_tools.example_files import calls, load, losses
from tests.formats.other_tools.samples import SAMPLES, Sample, document, flow, flow_response, tnet

ONCE = {"ruby-vcr", "go-vcr", "nock", "polly", "azure-test-proxy"}


def changed(sample: Sample, change: Any) -> bytes:
    value = json.loads(sample.text)
    change(value)
    return document(value)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.file)
def test_a_file_is_recognised_by_its_content_alone(sample: Sample) -> None:
    is_json = sample.text[:1] in (b"{", b"[")
    for suffix in ("", ".txt", *([".json", ".yaml"] if is_json else [])):
        found = registry.detect(sample.text, suffix)
        assert (found and found.name, found and found.tool) == (sample.format, sample.tool)


@pytest.mark.parametrize(
    "sample",
    [sample for sample in SAMPLES if sample.format != "mitmproxy"],
    ids=lambda sample: sample.file,
)
def test_a_byte_order_mark_before_a_text_changes_nothing(sample: Sample) -> None:
    marked = b"\xef\xbb\xbf" + sample.text

    found = registry.detect(marked, "")
    assert found is not None
    assert found.name == sample.format
    assert calls(load(sample.format, marked)) == calls(load(sample.format, sample.text))


@pytest.mark.parametrize(
    ("text", "name"), [(b'{"fixtures": []}', "aimock"), (b'{"mappings": []}', "wiremock")]
)
def test_a_file_without_recordings_is_its_tool_s(text: bytes, name: str) -> None:
    found = registry.detect(text, ".json")

    assert found is not None
    assert found.name == name
    assert calls(load(name, text)) == []


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.file)
def test_equal_requests_are_answered_as_by_the_tool(sample: Sample) -> None:
    meta = load(sample.format, sample.text).cassette.head.meta

    assert repeats_of_meta(meta) == ("miss" if sample.format in ONCE else "last")


def test_the_first_version_of_ruby_vcr_is_read() -> None:
    loaded = load(
        "ruby-vcr",
        b"""---
- !ruby/struct:VCR::HTTPInteraction
  request: !ruby/struct:VCR::Request
    method: :get
    uri: http://example.com:80/foo
    body: !!null
    headers:
  response: !ruby/struct:VCR::Response
    status: !ruby/struct:VCR::ResponseStatus
      code: 200
      message: OK
    headers:
      content-type:
      - text/html
    body: foo
    http_version: '1.1'
""".replace(b" !!null", b""),
    )

    (call,) = calls(loaded)
    assert (call.request.method, call.response.body) == ("GET", b"foo")
    assert losses(loaded) == []


def test_what_ruby_vcr_would_run_is_named() -> None:
    text = samples.RUBY.text.replace(b'{"q": 1}', b"<%= body %>")

    assert losses(load("ruby-vcr", text)) == [f"http_interactions[1]: {ruby_vcr.NOT_RUN}"]


@pytest.mark.parametrize(
    ("body", "kept"), [(samples.BINARY, False), (samples.CODED[:-9], True), (samples.PLAIN, False)]
)
def test_a_header_of_a_coding_that_a_tool_took_off_is_not_kept(body: bytes, kept: bool) -> None:
    def change(value: Any) -> None:
        response = value["http_interactions"][0]["response"]
        response["headers"] = {"Content-Encoding": ["gzip"]}
        response["body"]["base64_string"] = samples.base64_text(body)

    (call,) = calls(load("ruby-vcr", changed(samples.RUBY_JSON, change)))

    assert call.response.body == body
    assert [name for name, _ in call.response.headers] == [b"Content-Encoding"] * kept


def test_a_placeholder_for_a_host_leaves_its_interaction_out() -> None:
    def change(value: Any) -> None:
        value["http_interactions"][0]["request"]["uri"] = "<HOST>/user"

    assert losses(load("ruby-vcr", changed(samples.RUBY_JSON, change))) == [
        "http_interactions[0]: '<HOST>/user' is no URL of an HTTP call: left out"
    ]


def test_go_vcr_behind_a_server_names_the_host_beside_the_path() -> None:
    text = samples.GO_2.text.replace(b"url: https://things.example.com/coded", b"url: /coded")

    (call,) = calls(load("go-vcr", text))

    assert (call.request.url, call.latency_ms) == ("http://things.example.com/coded", 1.5)


@pytest.mark.parametrize(
    ("text", "found", "said"),
    [
        (samples.HTTPRR.text[:-1], 1, "records[1]: is cut off: the file ends before its response"),
        (samples.httprr((b"nonsense", b"HTTP/1.1 200 OK\r\n\r\n")), 0, "is no request"),
        (samples.httprr((b"GET http://h/ HTTP/1.1\r\n\r\n", b"HTTP/1.1 101 x\r\n\r\n")), 0, "101"),
    ],
)
def test_a_record_of_httprr_that_cannot_be_read_is_left_out(
    text: bytes, found: int, said: str
) -> None:
    loaded = load("httprr", text)

    assert len(calls(loaded)) == found
    assert said in losses(loaded)[0]


def test_a_trace_without_lengths_is_refused_with_its_line() -> None:
    with pytest.raises(FormatFault, match="lengths") as refused:
        load("httprr", b"httprr trace v1\nGET / HTTP/1.1\n")

    assert refused.value.line == 2


def test_lengths_that_scrubbing_left_wrong_do_not_count() -> None:
    (call,) = calls(
        load(
            "httprr",
            samples.httprr(
                (
                    b"POST http://h/ HTTP/1.1\nContent-Length: 900\n\nab",
                    b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\nTransfer-Encoding: chunked\r\n\r\nzz",
                )
            ),
        )
    )

    assert (call.request.body, call.response.body) == (b"ab", b"zz")


def test_nock_before_11_wrote_hexadecimal_digits_without_a_word() -> None:
    def change(value: Any) -> None:
        del value[2]["responseIsBinary"]
        value[1]["body"] = "*"

    loaded = load("nock", changed(samples.NOCK, change))

    assert calls(loaded)[2].response.body == samples.BINARY
    assert losses(loaded) == [f"[1].body: {nock.ANY_BODY}", f"[2].response: {nock.HEX}"]


def test_hoverfly_says_what_no_recording_can_hold() -> None:
    loaded = load("hoverfly", samples.HOVERFLY.text)

    assert [loss for loss in losses(loaded) if "left out" in loss] == [
        "data.pairs[2]: matches 'path' by a pattern: left out",
        "data.pairs[3]: its answer is a template, which Hoverfly fills for each request: left out",
    ]
    assert (
        f"data.pairs[1].request.query: {hoverfly.NARROWED.format('a request without one')}"
        in losses(loaded)
    )


@pytest.mark.parametrize(
    "request_",
    [
        {"path": "/a", "method": "GET", "destination": "h", "scheme": "http", "query": "b=1"},
        {
            "path": {"exactMatch": "/a"},
            "method": {"exactMatch": "GET"},
            "destination": {"exactMatch": "h"},
            "scheme": {"exactMatch": "http"},
            "query": {"exactMatch": "b=1"},
            "headers": {"Accept": ["*/*"]},
        },
        {
            "path": {"exactMatch": "/a"},
            "method": {"exactMatch": "GET"},
            "destination": {"exactMatch": "h"},
            "scheme": {"exactMatch": "http"},
            "queriesWithMatchers": {"b": {"exactMatch": "1"}},
        },
    ],
)
def test_older_simulations_of_hoverfly_are_read(request_: Any) -> None:
    simulation = {
        "data": {"pairs": [{"request": request_, "response": {"status": 200, "body": "x"}}]},
        "meta": {"schemaVersion": "v1"},
    }

    (call,) = calls(load("hoverfly", document(simulation)))

    assert (call.request.url, call.response.body) == ("http://h/a?b=1", b"x")


def llama(response: Any, **request: Any) -> bytes:
    def change(value: Any) -> None:
        value["response"] = {"is_streaming": False, **response}
        value["request"] |= request

    return changed(samples.LLAMA_STACK, change)


@pytest.mark.parametrize(
    ("response", "status", "body"),
    [
        ({"body": {"__type__": "x", "__data__": {"a": 1}}}, 200, b'{"a":1}'),
        (
            {"body": [{"__type__": "m", "__data__": {"id": 1}}]},
            200,
            b'{"object":"list","data":[{"id":1}]}',
        ),
        (
            {
                "body": None,
                "is_exception": True,
                "exception_data": {"status_code": 400, "body": {"message": "no"}},
            },
            400,
            b'{"error":{"message":"no"}}',
        ),
        (
            {"is_streaming": True, "body": ["event: a", "data: {}", "", "data: {}", ""]},
            200,
            b"event: a\ndata: {}\n\ndata: {}\n\n",
        ),
    ],
)
def test_the_answers_of_llama_stack_are_rebuilt(response: Any, status: int, body: bytes) -> None:
    (call,) = calls(load("llama-stack", llama(response)))

    assert (call.response.status, call.response.body) == (status, body)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (llama({"body": {}}, url=None), llama_stack.NO_CALL),
        (llama({"body": None, "is_exception": True}), llama_stack.NO_ERROR),
    ],
)
def test_what_llama_stack_recorded_of_tools_is_left_out(text: bytes, why: str) -> None:
    loaded = load("llama-stack", text)

    assert (calls(loaded), losses(loaded)) == ([], [f"{why}: left out"])


def test_streams_of_ollama_are_lines_and_lists_of_models_are_asked_for() -> None:
    lines = llama(
        {"is_streaming": True, "body": [{"__type__": "x", "__data__": {"a": 1}}] * 2},
        url="http://localhost:11434/api/chat",
        endpoint="/api/chat",
    )
    models = llama({"body": []}, endpoint="/v1/models", url="http://h/v1/v1/models")

    (chat,), (listed,) = calls(load("llama-stack", lines)), calls(load("llama-stack", models))

    assert [*chat.response.pieces()] == [b'{"a":1}\n'] * 2
    assert (listed.request.method, listed.request.url) == ("GET", "http://h/v1/models")


def test_a_body_that_test_server_did_not_keep_is_named() -> None:
    def change(value: Any) -> None:
        value["interactions"][0]["response"]["bodySegments"] = None

    loaded = load("test-server", changed(samples.TEST_SERVER, change))

    assert losses(loaded) == [f"interactions[0].response.bodySegments: {test_server.NO_BODY}"]


def test_the_values_of_the_azure_test_proxy_are_named() -> None:
    assert losses(load("azure-test-proxy", samples.AZURE.text)) == [
        f"Variables: {azure_test_proxy.VARIABLES}"
    ]


def test_flows_of_old_versions_are_read_and_other_kinds_left_out() -> None:
    old = flow("/a", None)
    old |= {
        "version": [0, 13],
        "response": {
            "httpversion": [1, 1],
            "code": 201,
            "msg": b"Made",
            "headers": [],
            "content": b"x",
        },
    }
    socket = flow("/ws", flow_response(b""), websocket={"messages": []})
    streamed = flow("/big", flow_response(b"") | {"content": None})

    loaded = load("mitmproxy", b"".join(map(tnet, [old, socket, streamed])) + b"99:cut")

    (call,) = calls(loaded)
    assert (call.response.status, call.response.head.reason) == (201, "Made")
    assert [loss.partition(": ")[0] for loss in losses(loaded)] == [
        f"flows[{n}]" for n in (1, 2, 3)
    ]
    assert all("left out" in loss for loss in losses(loaded))


def test_a_file_of_mitmproxy_that_is_none_is_refused() -> None:
    with pytest.raises(FormatFault, match="the first flow breaks off"):
        load("mitmproxy", b"900:7:version;")
