"""A small file of each tool, and what a client gets when it asks for the calls in it."""

import base64
import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.cli.invocation import KEY

BINARY = b"\xff\x00\x01\x02"
PLAIN = b'{"ok": "n\xc3\xa9"}\n'
CODED = gzip.compress(PLAIN, mtime=0)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, with a body a POST, and the answer to it."""

    target: str
    answer: bytes
    body: bytes = b""
    status: int = 200
    fields: Mapping[bytes, list[bytes]] = field(default_factory=dict)
    chunks: int = 1
    form: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """A file: how the tool is called in messages, the format's name, the file's name and text."""

    tool: str
    format: str
    file: str
    text: bytes
    asked: tuple[Asked, ...]
    left_out: int = 0


def document(value: object) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False).encode()


def base64_text(content: bytes) -> str:
    return base64.b64encode(content).decode()


COOKIES = {b"set-cookie": [b"a=1; Path=/", b"b=2; Path=/"]}
CHAT = b'{"model":"m","messages":[{"role":"user","content":"Hi"}]}'
STREAMED = b'{"model":"m","stream":true}'
EVENTS = b'data: {"n":1}\n\ndata: {"n":2}\n\n'

RUBY = Sample(
    "Ruby's VCR",
    "ruby-vcr",
    "ruby.yml",
    f"""---
http_interactions:
- request:
    method: get
    uri: https://things.example.com/things?x=1
    body:
      encoding: US-ASCII
      string: ''
    headers:
      Authorization:
      - Bearer {KEY}
  response:
    status:
      code: 200
      message: OK
    headers: &1
      Content-Type:
      - text/plain
      Set-Cookie:
      - a=1; Path=/
      - b=2; Path=/
    body:
      encoding: ASCII-8BIT
      string: !binary |-
        {base64_text(BINARY)}
    http_version:
  recorded_at: Tue, 01 Nov 2011 04:58:44 GMT
- request:
    method: post
    uri: https://things.example.com/latin
    body:
      encoding: UTF-8
      string: ! '{{"q": 1}}'
    headers:
      Content-Type:
      - application/json
  response:
    status:
      code: 201
      message: Created
    headers: *1
    body:
      encoding: ISO-8859-1
      string: né
    http_version: '1.1'
  recorded_at: Tue, 01 Nov 2011 04:58:45 GMT
- request:
    method: get
    uri: https://things.example.com/coded
    body:
      encoding: US-ASCII
      base64_string: ''
    headers: {{}}
  response:
    status:
      code: 200
      message: OK
    headers:
      Content-Encoding:
      - gzip
    body:
      encoding: ASCII-8BIT
      base64_string: |
        {base64_text(CODED)}
    http_version:
  recorded_at: Tue, 01 Nov 2011 04:58:46 GMT
recorded_with: VCR 6.3.1
""".encode(),
    (
        Asked("/things?x=1", BINARY, fields=COOKIES),
        Asked("/latin", "né".encode("latin-1"), b'{"q": 1}', 201, COOKIES),
        Asked("/coded", PLAIN),
    ),
)
RUBY_JSON = Sample(
    "Ruby's VCR",
    "ruby-vcr",
    "ruby_2.json",
    document(
        {
            "http_interactions": [
                {
                    "request": {
                        "method": "get",
                        "uri": f"https://api.github.com/user?access_token={KEY}",
                        "body": {"encoding": "US-ASCII", "base64_string": ""},
                        "headers": {"Accept": ["*/*"]},
                    },
                    "response": {
                        "status": {"code": 200, "message": "OK"},
                        "headers": {"Content-Type": ["application/json"]},
                        "body": {"encoding": "UTF-8", "base64_string": base64_text(PLAIN) + "\n"},
                        "http_version": None,
                    },
                    "recorded_at": "Wed, 15 Mar 2017 05:35:13 GMT",
                }
            ],
            "recorded_with": "VCR 2.4.0",
        }
    ),
    (),
)
GO_1 = Sample(
    "go-vcr",
    "go-vcr",
    "go1.yaml",
    f"""---
version: 1
interactions:
- request:
    body: '{{"q":1}}'
    form: {{}}
    headers:
      Authorization:
      - Bearer {KEY}
      Content-Type:
      - application/json
    url: https://things.example.com/v1/things
    method: POST
  response:
    body: !!binary {base64_text(BINARY)}
    headers:
      Set-Cookie:
      - a=1; Path=/
      - b=2; Path=/
    status: 202 Accepted
    code: 202
    duration: ""
""".encode(),
    (Asked("/v1/things", BINARY, b'{"q":1}', 202, COOKIES),),
)
GO_2 = Sample(
    "go-vcr",
    "go-vcr",
    "go2.yaml",
    f"""---
version: 2
interactions:
    - id: 0
      request:
        proto: HTTP/1.1
        proto_major: 1
        proto_minor: 1
        content_length: 0
        transfer_encoding: []
        trailer: {{}}
        host: things.example.com
        remote_addr: ""
        request_uri: ""
        body: ""
        form: {{}}
        headers:
            X-Api-Key:
                - {KEY}
        url: https://things.example.com/coded
        method: GET
      response:
        proto: HTTP/2.0
        proto_major: 2
        proto_minor: 0
        transfer_encoding: []
        trailer: {{}}
        content_length: -1
        uncompressed: true
        body: "{{\\"ok\\": \\"n\\u00e9\\"}}\\n"
        headers:
            Content-Type:
                - application/json
        status: 200 OK
        code: 200
        duration: 1.5ms
""".encode(),
    (Asked("/coded", PLAIN),),
)


def httprr(*records: tuple[bytes, bytes]) -> bytes:
    lines = [b"%d %d\n%b%b" % (len(asked), len(got), asked, got) for asked, got in records]
    return b"httprr trace v1\n" + b"".join(lines)


HTTPRR = Sample(
    "httprr",
    "httprr",
    "trace.httprr",
    httprr(
        (
            b"POST https://api.openai.com/v1/chat/completions HTTP/1.1\r\nHost: api.openai.com\r\n"
            b"Content-Length: %d\r\nContent-Type: application/json\r\nAuthorization: Bearer %b\r\n"
            b"\r\n%b" % (len(CHAT), KEY.encode(), CHAT),
            b"HTTP/2.0 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
            b'\r\nf\r\ndata: {"n":1}\n\n\r\nf\r\ndata: {"n":2}\n\n\r\n0\r\n\r\n',
        ),
        (
            b"GET https://things.example.com/raw HTTP/1.1\r\nHost: things.example.com\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1; Path=/\r\nSet-Cookie: b=2; Path=/\r\n"
            b"Content-Length: 4\r\n\r\n" + BINARY,
        ),
    ),
    (
        Asked("/v1/chat/completions", EVENTS, CHAT, chunks=2),
        Asked("/raw", BINARY, fields=COOKIES),
    ),
)
NOCK = Sample(
    "nock",
    "nock",
    "nock.json",
    document(
        [
            {
                "scope": "https://api.openai.com:443",
                "method": "POST",
                "path": "/v1/chat/completions",
                "body": json.loads(CHAT),
                "status": 200,
                "response": {"id": "c1", "choices": []},
                "rawHeaders": ["Content-Type", "application/json", "X-A", "1", "X-A", "2"],
                "reqheaders": {"authorization": f"Bearer {KEY}"},
                "responseIsBinary": False,
            },
            {
                "scope": "https://things.example.com:443",
                "method": "GET",
                "path": "/coded",
                "body": "",
                "status": 200,
                "response": [CODED[:9].hex(), CODED[9:].hex()],
                "rawHeaders": {
                    "content-encoding": "gzip",
                    "set-cookie": ["a=1; Path=/", "b=2; Path=/"],
                },
            },
            {
                "scope": "https://things.example.com:443",
                "method": "GET",
                "path": "/raw",
                "body": "",
                "status": 200,
                "response": BINARY.hex(),
                "rawHeaders": [["Content-Type", "image/png"]],
                "responseIsBinary": True,
            },
        ]
    ),
    (
        Asked(
            "/v1/chat/completions",
            b'{"id":"c1","choices":[]}',
            CHAT,
            fields={b"x-a": [b"1", b"2"]},
        ),
        Asked("/coded", PLAIN, fields=COOKIES),
        Asked("/raw", BINARY),
    ),
)


def polly_entry(
    path: str, content: dict[str, object], *headers: tuple[str, str]
) -> dict[str, object]:
    return {
        "_id": f"id-{path}",
        "_order": 0,
        "cache": {},
        "request": {
            "method": "GET",
            "url": f"https://things.example.com{path}",
            "httpVersion": "HTTP/1.1",
            "headers": [{"_fromType": "array", "name": "authorization", "value": f"Bearer {KEY}"}],
            "queryString": [],
            "cookies": [],
        },
        "response": {
            "status": 200,
            "statusText": "OK",
            "httpVersion": "HTTP/1.1",
            "headers": [{"name": name, "value": value} for name, value in headers],
            "content": {"mimeType": "text/plain", "size": 1, **content},
        },
        "startedDateTime": "2024-01-01T00:00:00.000Z",
        "time": 12,
        "timings": {"send": 0, "wait": 12, "receive": 0},
    }


POLLY = Sample(
    "Polly.JS",
    "polly",
    "polly.har",
    document(
        {
            "log": {
                "_recordingName": "things/reads",
                "creator": {"name": "Polly.JS", "version": "6.0.6", "comment": "persister:fs"},
                "version": "1.2",
                "pages": [],
                "entries": [
                    polly_entry(
                        "/coded",
                        {
                            "encoding": "base64",
                            "text": json.dumps([base64_text(CODED[:7]), base64_text(CODED[7:])]),
                        },
                        ("content-encoding", "gzip"),
                    ),
                    polly_entry(
                        "/old",
                        {"text": json.dumps([CODED.hex()]), "_isBinary": True},
                        ("content-encoding", "gzip"),
                    ),
                    polly_entry(
                        "/raw",
                        {"encoding": "base64", "text": base64_text(BINARY), "_isBinary": True},
                        ("set-cookie", "a=1; Path=/"),
                        ("set-cookie", "b=2; Path=/"),
                    ),
                    polly_entry("/text", {"text": PLAIN.decode()}),
                ],
            }
        }
    ),
    (
        Asked("/coded", PLAIN),
        Asked("/old", PLAIN),
        Asked("/raw", BINARY, fields=COOKIES),
        Asked("/text", PLAIN),
    ),
)


def exact(value: object, matcher: str = "exact") -> list[dict[str, object]]:
    return [{"matcher": matcher, "value": value}]


HOVERFLY = Sample(
    "Hoverfly",
    "hoverfly",
    "hoverfly.json",
    document(
        {
            "data": {
                "pairs": [
                    {
                        "request": {
                            "path": exact("/things"),
                            "method": exact("GET"),
                            "destination": exact("things.example.com"),
                            "scheme": exact("https"),
                            "query": {"x": exact("1"), "y": exact("a b", "exact")},
                            "body": exact(""),
                            "headers": {"Authorization": exact(f"Bearer {KEY}")},
                        },
                        "response": {
                            "status": 200,
                            "body": base64_text(CODED),
                            "encodedBody": True,
                            "headers": {
                                "Content-Encoding": ["gzip"],
                                "Set-Cookie": ["a=1; Path=/", "b=2; Path=/"],
                            },
                            "templated": False,
                        },
                    },
                    {
                        "request": {
                            "path": exact("/things"),
                            "method": exact("POST"),
                            "destination": exact("things.example.com"),
                            "scheme": exact("https"),
                            "body": exact('{"q": 1}', "json"),
                        },
                        "response": {"status": 201, "body": "made", "templated": False},
                    },
                    {
                        "request": {"path": exact("/t.*", "regex"), "method": exact("GET")},
                        "response": {"status": 200, "body": "any"},
                    },
                    {
                        "request": {"path": exact("/now"), "method": exact("GET")},
                        "response": {"status": 200, "body": "{{ now }}", "templated": True},
                    },
                ],
                "globalActions": {"delays": [], "delaysLogNormal": []},
            },
            "meta": {"schemaVersion": "v5.3", "hoverflyVersion": "v1.10.0"},
        }
    ),
    (
        Asked("/things?x=1&y=a%20b", PLAIN, fields=COOKIES),
        Asked("/things", b"made", b'{"q": 1}', 201),
    ),
    left_out=2,
)
LLAMA_STACK = Sample(
    "llama-stack",
    "llama-stack",
    "llama.json",
    document(
        {
            "test_id": "tests/integration/inference/test_chat.py::test_stream[m]",
            "request": {
                "method": "POST",
                "url": "https://api.openai.com/v1/v1/chat/completions",
                "headers": {"authorization": f"Bearer {KEY}"},
                "body": json.loads(STREAMED),
                "endpoint": "/v1/chat/completions",
                "model": "m",
            },
            "response": {
                "body": [
                    {"__type__": "openai.types.chat.ChatCompletionChunk", "__data__": {"n": 1}},
                    {"__type__": "openai.types.chat.ChatCompletionChunk", "__data__": {"n": 2}},
                ],
                "is_streaming": True,
            },
            "id_normalization_mapping": {},
        }
    ),
    (Asked("/v1/chat/completions", EVENTS + b"data: [DONE]\n\n", STREAMED, chunks=3),),
)
TEST_SERVER = Sample(
    "test-server",
    "test-server",
    "test_server.json",
    document(
        {
            "recordID": "chat",
            "interactions": [
                {
                    "request": {
                        "method": "POST",
                        "url": "/v1beta/models/m:streamGenerateContent?alt=sse",
                        "request": "POST /v1beta/models/m:streamGenerateContent?alt=sse HTTP/1.1",
                        "headers": {
                            "Content-Type": "application/json",
                            "X-Goog-Api-Key": KEY,
                            "Test-Name": "chat",
                        },
                        "bodySegments": [{"contents": []}],
                        "previousRequest": "0",
                        "serverAddress": "generativelanguage.googleapis.com",
                        "port": 443,
                        "protocol": "https",
                    },
                    "shaSum": "1",
                    "response": {
                        "statusCode": 200,
                        "headers": {
                            "Content-Type": "text/event-stream",
                            "Content-Encoding": "gzip",
                            "Set-Cookie": "a=1; Path=/, b=2; Path=/",
                        },
                        "bodySegments": [{"n": 1}, {"n": 2}],
                    },
                }
            ],
        }
    ),
    (
        Asked(
            "/v1beta/models/m:streamGenerateContent?alt=sse",
            EVENTS,
            b'{"contents":[]}',
            fields=COOKIES,
            chunks=2,
        ),
    ),
)
DD_APM = Sample(
    "dd-apm-test-agent",
    "dd-apm",
    "openai_post_1.json",
    document(
        {
            "request": {
                "method": "POST",
                "url": "https://api.openai.com/v1/audio/speech",
                "headers": {"Content-Type": "application/json", "x-token": KEY},
                "body": '{"input": "Hi"}',
            },
            "response": {
                "status": {"code": 200, "message": "OK"},
                "headers": {"Content-Type": "audio/mpeg", "Content-Encoding": "gzip"},
                "body": f"base64:{base64_text(BINARY)}",
            },
        }
    ),
    (Asked("/v1/audio/speech", BINARY, b'{"input": "Hi"}'),),
)
AZURE = Sample(
    "the Azure test proxy",
    "azure-test-proxy",
    "azure.json",
    document(
        {
            "Entries": [
                {
                    "RequestUri": "https://acct.table.core.windows.net/Tables",
                    "RequestMethod": "POST",
                    "RequestHeaders": {
                        "Authorization": f"Bearer {KEY}",
                        "Content-Type": "application/json",
                    },
                    "RequestBody": {"TableName": "t"},
                    "StatusCode": 201,
                    "ResponseHeaders": {
                        "Content-Type": "application/json",
                        "Set-Cookie": ["a=1; Path=/", "b=2; Path=/"],
                    },
                    "ResponseBody": {"TableName": "t"},
                },
                {
                    "RequestUri": "https://acct.table.core.windows.net/lines",
                    "RequestMethod": "GET",
                    "RequestHeaders": {},
                    "RequestBody": None,
                    "StatusCode": 200,
                    "ResponseHeaders": {"Content-Type": "text/plain"},
                    "ResponseBody": ["one\r\n", "two\n", "three"],
                },
                {
                    "RequestUri": "https://acct.table.core.windows.net/raw",
                    "RequestMethod": "GET",
                    "RequestHeaders": {},
                    "RequestBody": None,
                    "StatusCode": 200,
                    "ResponseHeaders": {"Content-Type": "application/octet-stream"},
                    "ResponseBody": base64_text(BINARY),
                },
            ],
            "Variables": {"name": "t"},
        }
    ),
    (
        Asked("/Tables", b'{"TableName":"t"}', b'{"TableName": "t"}', 201, COOKIES),
        Asked("/lines", b"one\r\ntwo\nthree"),
        Asked("/raw", BINARY),
    ),
)


def tnet(value: object) -> bytes:
    """A typed netstring, as mitmproxy writes it."""
    match value:
        case None:
            return b"0:~"
        case bool():
            content, kind = str(value).lower().encode(), b"!"
        case bytes():
            content, kind = value, b","
        case str():
            content, kind = value.encode(), b";"
        case int():
            content, kind = str(value).encode(), b"#"
        case float():
            content, kind = str(value).encode(), b"^"
        case list():
            content, kind = b"".join(map(tnet, value)), b"]"
        case dict():
            pairs = [side for pair in value.items() for side in pair]
            content, kind = b"".join(map(tnet, pairs)), b"}"
    return b"%d:%b%b" % (len(content), content, kind)


def flow(path: str, response: dict[str, object] | None, **others: object) -> dict[str, object]:
    return {
        "version": 21,
        "type": "http",
        "id": "1",
        "websocket": None,
        "error": None,
        "request": {
            "host": "things.example.com",
            "port": 443,
            "method": b"GET",
            "scheme": b"https",
            "authority": b"",
            "path": path.encode(),
            "http_version": b"HTTP/1.1",
            "headers": [[b"Authorization", f"Bearer {KEY}".encode()]],
            "content": b"",
            "trailers": None,
            "timestamp_start": 1.0,
            "timestamp_end": 1.1,
        },
        "response": response,
        **others,
    }


def flow_response(content: bytes, *headers: tuple[bytes, bytes]) -> dict[str, object]:
    return {
        "http_version": b"HTTP/1.1",
        "status_code": 200,
        "reason": b"OK",
        "headers": [[*pair] for pair in headers],
        "content": content,
        "trailers": None,
        "timestamp_start": 1.25,
        "timestamp_end": 1.5,
    }


MITMPROXY = Sample(
    "mitmproxy",
    "mitmproxy",
    "flows",
    b"".join(
        map(
            tnet,
            [
                flow("/coded", flow_response(CODED, (b"Content-Encoding", b"gzip"))),
                flow(
                    "/raw",
                    flow_response(
                        BINARY, (b"Set-Cookie", b"a=1; Path=/"), (b"Set-Cookie", b"b=2; Path=/")
                    ),
                ),
                flow("/none", None, error={"msg": "refused", "timestamp": 1.0}),
                {"version": 21, "type": "tcp", "messages": []},
            ],
        )
    ),
    (Asked("/coded", PLAIN), Asked("/raw", BINARY, fields=COOKIES)),
    left_out=2,
)
SAMPLES = (
    *(RUBY, RUBY_JSON, GO_1, GO_2, HTTPRR, NOCK, POLLY, HOVERFLY, LLAMA_STACK, TEST_SERVER),
    *(DD_APM, AZURE, MITMPROXY),
)
