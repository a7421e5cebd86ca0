"""Whatever is replaced in one place teaches its value: the value is replaced in all other places."""

import base64
import json
from collections.abc import Callable, Sequence

import pytest

from tapeway.core.matching.request_redaction import RequestRedaction
from tapeway.core.model.messages import Request, Response, ResponseHead
from tapeway.core.redaction.redactor import Redactor
from tapeway.core.streams import aws_frames
from tapeway.core.streams.streamed_texts import StreamedTexts
from tests.core.keys import JSON
from tests.core.redaction.carriers import GIVEN, NOT_GIVEN
from tests.core.redaction.example_messages import make_request
from tests.support.event_stream_frames import frame

SALT = "run-1"
VALUE = "Zq7TnV4mXc9LpR2sWk8HdY3b"
LOGIN = base64.b64encode(f"ada:{VALUE}".encode()).decode()
SEALED = base64.b64encode(VALUE.encode()).decode()

TEXTS = {
    "an assignment": f"HF_TOKEN={VALUE}",
    "an export": f"export DB_PASSWORD='{VALUE}'",
    "YAML": f"services:\n  api_key: {VALUE}\n",
    "a block of YAML": f"db:\n  password: |-\n    {VALUE}\n",
    "a Secret of Kubernetes": f"data:\n  HF_TOKEN: {SEALED}\n",
    "a Dockerfile": f"ENV HF_TOKEN {VALUE}\n",
    "PowerShell": f'$env:HF_TOKEN = "{VALUE}"',
    "an option": f"mycli login --api-key {VALUE} --region eu",
    "a bearer token of curl": f'curl -H "Authorization: Bearer {VALUE}" https://x.test',
    "a login in base64": f'curl -H "Authorization: Basic {LOGIN}" https://x.test',
    "curl -u": f"curl -u ada:{VALUE} https://x.test",
    "a password in a URL": f"git clone https://ada:{VALUE}@x.test/r.git",
    "a token in a URL": f"git clone https://{VALUE}@x.test/r.git",
    "a database": f"postgres://app:{VALUE}@db:5432/x",
    "a connection string": f"Server=db;User=app;Password={VALUE};",
    "a signed link": f"https://x.test/blob?sv=2024-11-04&sig={VALUE}&se=2026",
    "AWS's signed link": f"https://x.test/o?X-Amz-Security-Token={VALUE}&X-Amz-Expires=60",
    "a JWT in a link": f"https://x.test/p?jwt={VALUE}",
    "an argument of GraphQL": f'mutation {{ login(user: "ada", password: "{VALUE}") {{ id }} }}',
    "JSON in a string": json.dumps({"inner": json.dumps({"client_secret": VALUE})}),
    ".netrc": f"machine x.test login ada password {VALUE}",
    "an element": f'<wsse:Password Type="PasswordText">{VALUE}</wsse:Password>',
    "an escaped element": f'&lt;Password a="b"&gt;{VALUE}&lt;/Password&gt;',
} | {text: text.replace("VALUE", VALUE) for text in GIVEN}


def stored(request: Request) -> Request:
    return Redactor(SALT).request(request)


@pytest.mark.parametrize("text", TEXTS.values(), ids=list(TEXTS))
def test_a_value_in_a_text_is_replaced_in_the_rest_of_the_request(text: str) -> None:
    body = json.dumps({"messages": [{"content": text}, {"content": f"so it is {VALUE}."}]})
    seen = stored(make_request(JSON, target=f"/v1/{VALUE}/x?of={VALUE}", body=body.encode()))

    assert VALUE not in seen.target + seen.body.decode()
    assert json.loads(seen.body)["messages"][1]["content"].startswith("so it is REDACTED.")


@pytest.mark.parametrize("text", TEXTS.values(), ids=list(TEXTS))
def test_a_value_in_a_text_is_replaced_in_later_recordings(text: str) -> None:
    redaction = RequestRedaction()
    body = json.dumps({"messages": [{"content": text}]}).encode()
    _, taught = redaction.redact_and_learn(SALT, make_request(JSON, body=body))
    redaction.learn(SALT, taught)

    later = redaction.redact(SALT, make_request(JSON, body=json.dumps([VALUE]).encode()))

    assert json.loads(later.body)[0].startswith("REDACTED.")


@pytest.mark.parametrize("text", GIVEN)
@pytest.mark.parametrize("word", ["customer_email_address", "required", "YOUR_API_KEY_HERE"])
def test_a_word_in_the_place_of_a_value_teaches_nothing(text: str, word: str) -> None:
    body = json.dumps({"text": text.replace("VALUE", word)}).encode()

    assert Redactor(SALT).request_and_secrets(make_request(JSON, body=body))[1] == []


@pytest.mark.parametrize("text", NOT_GIVEN)
def test_an_opaque_value_beside_a_name_that_is_not_given_it_teaches_nothing(text: str) -> None:
    for written in (text, json.dumps(text), json.dumps({"in": json.dumps(text)})):
        body = written.replace("VALUE", VALUE).encode()
        response = Response(ResponseHead(200), body)

        assert Redactor(SALT).response_and_secrets(response) == (response, [])


@pytest.mark.parametrize(
    "body",
    [
        f'<s><wsse:Password Type="PasswordText">{VALUE}</wsse:Password><n>{VALUE}</n></s>',
        f'<s><w:Password\n  Type="t"\n  w:Id="1">\n {VALUE}\n</w:Password><n>{VALUE}</n></s>',
        f"<s><Password><![CDATA[{VALUE}]]></Password><n>{VALUE}</n></s>",
        f"<s><api_key>{VALUE}</api_key><n>{VALUE}</n></s>",
    ],
)
def test_the_value_of_an_element_is_replaced_whatever_its_attributes(body: str) -> None:
    seen = stored(make_request(((b"content-type", b"text/xml"),), body=body.encode())).body

    assert VALUE.encode() not in seen
    assert seen.count(b"REDACTED.") == 2


@pytest.mark.parametrize("written", ["&#x{:X};", "&#{};", "&#x00{:x};", "&#0{};"])
@pytest.mark.parametrize("every", [1, 2, 5])
def test_a_value_in_the_numbers_of_its_letters_is_found(written: str, every: int) -> None:
    pieces = [
        letter if at % every else written.format(ord(letter)) for at, letter in enumerate(VALUE)
    ]
    body = f"<s><api_key>{VALUE}</api_key><n>so {''.join(pieces)}.</n></s>"
    seen = stored(make_request(((b"content-type", b"text/xml"),), body=body.encode())).body

    assert seen.count(b"REDACTED.") == 2
    assert seen.endswith(b".</n></s>")
    assert b"&#" not in seen


def test_an_element_with_attributes_holds_any_password_in_a_request() -> None:
    xml = b'<s><p:Password Type="t">hunter2</p:Password><Passwords n="1">two</Passwords></s>'
    seen = stored(make_request(((b"content-type", b"text/xml"),), body=xml)).body

    assert b"hunter2" not in seen
    assert seen.endswith(b'<Passwords n="1">two</Passwords></s>')


@pytest.mark.parametrize(
    "text",
    [
        f'40{{"token":"{VALUE}"}}',
        f'40/admin,{{"token":"{VALUE}"}}',
        json.dumps({"type": "connection_init", "payload": {"token": VALUE}}),
        json.dumps(["1", "1", "room:a", "phx_join", {"token": VALUE}]),
        json.dumps({"topic": "room:a", "event": "phx_join", "payload": {"token": VALUE}}),
        json.dumps({"cookie": f"sid={VALUE}"}),
        json.dumps({"cookie": f"theme=dark; sid={VALUE}"}),
    ],
)
def test_a_connections_login_teaches(text: str) -> None:
    _, taught = Redactor(SALT).request_and_secrets(make_request(JSON, body=text.encode()))

    assert VALUE.encode() in {secret.value for secret in taught}


@pytest.mark.parametrize("name", ["jwt", "credential"])
def test_a_parameter_teaches(name: str) -> None:
    body = json.dumps({"text": VALUE}).encode()
    seen = stored(make_request(JSON, target=f"/x?{name}={VALUE}", body=body))

    assert VALUE not in seen.target + seen.body.decode()


def test_a_file_in_multipart_teaches() -> None:
    head = 'Content-Disposition: form-data; name="{}"\r\n\r\n'
    parts = [head.format("env") + f"HF_TOKEN={VALUE}\n", head.format("note") + f"use {VALUE}"]
    body = "".join([f"--b\r\n{part}\r\n" for part in [*parts]]) + "--b--\r\n"
    media = (b"content-type", b"multipart/form-data; boundary=b")

    assert VALUE.encode() not in stored(make_request((media,), body=body.encode())).body


@pytest.mark.parametrize(
    "text",
    [
        "HF_TOKEN=hunter2",
        "HF_TOKEN=customer_email_address",
        "password: must_have_at_least_8_chars",
        "api_key = gpt-4o-mini-2024-07-18",
        "mycli --password anonymous-user --api-key YOUR_API_KEY",
        "ENV CACHE_KEY customer_email_address",
        "https://ada:hunter2@x.test and https://someone@x.test",
        '<Password Type="t">is_required_here</Password>',
        "postgres://postgres:postgres@db/x",
    ],
)
def test_what_is_not_opaque_teaches_nothing(text: str) -> None:
    request = make_request(JSON, body=json.dumps({"text": text}).encode())

    assert Redactor(SALT).request_and_secrets(request)[1] == []


# Streams: one text teaches, another repeats, and each is cut into pieces of three letters.

TEACHING, ECHOING = f"Put HF_TOKEN={VALUE} there.", f"Is {VALUE} right?"


def cut(text: str) -> list[str]:
    return [text[at : at + 3] for at in range(0, len(text), 3)]


def chat(at: int, piece: str) -> object:
    return {"choices": [{"index": at, "delta": {"content": piece}}]}


def responses(at: int, piece: str) -> object:
    kind = ("response.output_text.delta", "response.function_call_arguments.delta")[at]
    return {"type": kind, "output_index": at, "content_index": 0, "delta": piece}


def anthropic(at: int, piece: str) -> object:
    delta = (
        {"type": "text_delta", "text": piece},
        {"type": "input_json_delta", "partial_json": piece},
    )[at]
    return {"type": "content_block_delta", "index": at, "delta": delta}


def gemini(at: int, piece: str) -> object:
    return {"candidates": [{"index": at, "content": {"parts": [{"text": piece}]}}]}


def bedrock(at: int, piece: str) -> object:
    return {"contentBlockIndex": at, "delta": {"text": piece}}


def events(lines: Sequence[bytes]) -> tuple[bytes, bytes]:
    return b"text/event-stream", b"".join([b"data: %b\n\n" % line for line in lines])


def array(lines: Sequence[bytes]) -> tuple[bytes, bytes]:
    return b"application/json", b"[%b]" % b",\n".join(lines)


def frames(lines: Sequence[bytes]) -> tuple[bytes, bytes]:
    return aws_frames.MEDIA_TYPE, b"".join([frame("delta", line) for line in lines])


def vercel(at: int, piece: str) -> object:
    return (piece, {"toolCallId": "t1", "argsTextDelta": piece})[at]


def named_lines(lines: Sequence[bytes]) -> tuple[bytes, bytes]:
    names = [b"0" if line.startswith(b'"') else b"c" for line in lines]
    return b"text/plain; charset=utf-8", b"".join(
        [b"%b:%b\n" % pair for pair in zip(names, lines, strict=True)]
    )


def texts_of(response: Response) -> str:
    media = response.head.value(b"content-type") or b""
    body = response.body
    if media == aws_frames.MEDIA_TYPE:
        body = b"".join([part.text + b"\n" for part in aws_frames.parse_frames(body)])
        media = b"application/x-ndjson"
    texts = StreamedTexts(body, media)
    return "\n".join(["".join([text for text, _, _ in pieces]) for pieces in texts])


STREAMS: dict[str, tuple[Callable[[int, str], object], Callable[..., tuple[bytes, bytes]]]] = {
    "Chat Completions": (chat, events),
    "Responses": (responses, events),
    "Anthropic": (anthropic, events),
    "Gemini's array": (gemini, array),
    "Bedrock's frames": (bedrock, frames),
    "Vercel's lines": (vercel, named_lines),
}


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("first", [0, 1])
def test_a_value_split_over_a_stream_teaches_and_is_found(name: str, first: int) -> None:
    made, framed = STREAMS[name]
    said = [(first, TEACHING), (1 - first, ECHOING)]
    lines = [json.dumps(made(at, piece)).encode() for at, text in said for piece in cut(text)]
    media, body = framed(lines)
    response = Response(ResponseHead(200, headers=((b"content-type", media),)), body)
    assert VALUE in texts_of(response)

    seen, taught = Redactor(SALT).response_and_secrets(response)

    assert VALUE not in texts_of(seen)
    assert texts_of(seen).count("REDACTED.") == 2
    assert VALUE.encode() in {secret.value for secret in taught}
    redaction = RequestRedaction()
    redaction.learn(SALT, taught)
    later = redaction.redactor(SALT, make_request(JSON)).response(response)
    assert VALUE not in texts_of(later)
