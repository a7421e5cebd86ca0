"""Every way in which a request or a response can carry a text, for the search for secrets in all."""

import base64
import gzip
import json
from collections.abc import Callable, Sequence
from urllib.parse import quote

from tapeway.core.model.messages import Headers, Request, Response, ResponseHead
from tests.support.event_stream_frames import frame, model_frame

JSON: Headers = ((b"Content-Type", b"application/json"),)
FORM: Headers = ((b"Content-Type", b"application/x-www-form-urlencoded"),)
PARTS: Headers = ((b"Content-Type", b"multipart/form-data; boundary=b0undary"),)
TEXT: Headers = ((b"Content-Type", b"text/plain"),)
XML: Headers = ((b"Content-Type", b"application/xml"),)
LINES: Headers = ((b"Content-Type", b"application/x-ndjson"),)
EVENTS: Headers = ((b"Content-Type", b"text/event-stream"),)
FRAMES: Headers = ((b"Content-Type", b"application/vnd.amazon.eventstream"),)

MakeRequest = Callable[[str], Request]
MakeResponse = Callable[[str], Response]


def request(body: bytes = b"{}", headers: Headers = JSON, target: str = "/v1/x") -> Request:
    return Request("openai", "POST", target, headers, body)


def response(*chunks: bytes, headers: Headers = JSON) -> Response:
    return Response.of_chunks(
        ResponseHead(200, "OK", headers, "chunked"),
        [(chunk, float(number)) for number, chunk in enumerate(chunks)],
    )


def posted(document: object) -> Request:
    return request(json.dumps(document).encode())


def answered(document: object) -> Response:
    return response(json.dumps(document).encode())


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def everything_percented(text: str) -> str:
    return "".join([f"%{octet:02X}" for octet in text.encode()])


def part(name: str, content: str, kind: str = "") -> bytes:
    typed = f"Content-Type: {kind}\r\n" if kind else ""
    head = f'--b0undary\r\nContent-Disposition: form-data; name="{name}"\r\n{typed}\r\n'
    return f"{head}{content}\r\n--b0undary--\r\n".encode()


def pieces(text: str, size: int = 5) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def event(document: object) -> bytes:
    return f"data: {json.dumps(document)}\n\n".encode()


def line(document: object) -> bytes:
    return json.dumps(document).encode() + b"\n"


def taking_turns(text: str, make: Callable[[int, str], object]) -> list[object]:
    """Events in which a text and another one take turns."""
    other = "Lorem ipsum dolor sit amet, consectetur adipisci elit, sed eiusmod tempor" * 9
    return [
        make(number, piece)
        for pair in zip(pieces(text), pieces(other), strict=False)
        for number, piece in enumerate(pair)
    ]


def choice(number: int, text: str) -> object:
    return {"choices": [{"index": number, "delta": {"content": text}}]}


def tool_call(number: int, text: str) -> object:
    call = {"index": number, "function": {"arguments": text}}
    return {"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}


def block(number: int, text: str) -> object:
    delta = {"type": "input_json_delta", "partial_json": text}
    return {"type": "content_block_delta", "index": number, "delta": delta}


def candidate(number: int, text: str) -> object:
    return {"candidates": [{"index": number, "content": {"parts": [{"text": text}]}}]}


REQUESTS: dict[str, MakeRequest] = {
    "query": lambda text: request(target=f"/v1/x?q={quote(text, safe='')}&n=1"),
    "query, encoded twice": lambda text: request(
        target=f"/v1/x?q={quote(quote(text, safe=''), safe='')}&n=1"
    ),
    "query, every letter encoded": lambda text: request(
        target=f"/v1/x?q={everything_percented(text)}"
    ),
    "URL in the query": lambda text: request(
        target=f"/v1/x?next={quote('https://a.example/?q=' + quote(text, safe=''), safe='')}"
    ),
    "path": lambda text: request(target=f"/v1/{quote(text, safe='')}/x"),
    "base64 in the path": lambda text: request(
        target=f"/v1/{base64.urlsafe_b64encode(text.encode()).decode()}/x"
    ),
    "header": lambda text: request(headers=(*JSON, (b"Accept-Language", text.encode()))),
    "header, encoded": lambda text: request(
        headers=(*JSON, (b"Accept-Language", everything_percented(text).encode()))
    ),
    "form": lambda text: request(f"q={quote(text, safe='')}&n=1".encode(), FORM),
    "form, encoded twice": lambda text: request(
        f"q={quote(quote(text, safe=''), safe='')}&n=1".encode(), FORM
    ),
    "JSON in a form": lambda text: request(
        f"payload={quote(json.dumps({'q': text}), safe='')}".encode(), FORM
    ),
    "part": lambda text: request(part("q", text), PARTS),
    "JSON part": lambda text: request(
        part("q", json.dumps({"q": text}), "application/json"), PARTS
    ),
    "base64 part": lambda text: request(part("q", b64(text), "text/plain"), PARTS),
    "JSON": lambda text: posted({"messages": [{"role": "user", "content": text}]}),
    "JSON, escaped": lambda text: request(
        json.dumps({"q": text}).replace("/", "\\/").replace("e", "\\u0065").encode()
    ),
    "JSON in a string": lambda text: posted({"q": json.dumps({"q": text})}),
    "tool arguments": lambda text: posted(
        {"tool_calls": [{"function": {"arguments": json.dumps({"q": json.dumps({"q": text})})}}]}
    ),
    "data URL": lambda text: posted({"url": f"data:text/plain;base64,{b64(text)}"}),
    "file in lines of base64": lambda text: posted(
        {"file": base64.encodebytes(text.encode()).decode()}
    ),
    "base64 of base64": lambda text: posted({"state": b64(json.dumps({"of": b64(text)}))}),
    "percent-encoding in JSON": lambda text: posted({"url": f"https://a.example/{quote(text)}"}),
    "XML": lambda text: request(f"<a><b>{text}</b></a>".encode(), XML),
    "lines": lambda text: request(line({"n": 1}) + line({"q": text}), LINES),
    "UTF-16": lambda text: request(text.encode("utf-16"), TEXT),
    "gzip": lambda text: request(
        gzip.compress(json.dumps({"q": text}).encode()), (*JSON, (b"Content-Encoding", b"gzip"))
    ),
    "octets": lambda text: request(
        b"\xff\xfe\x00\x01" * 9 + text.encode() + b"\x00\xff" * 9,
        ((b"Content-Type", b"application/octet-stream"),),
    ),
}
RESPONSES: dict[str, MakeResponse] = {
    "header": lambda text: response(b"{}", headers=(*JSON, (b"X-Echo", text.encode()))),
    "header, encoded": lambda text: response(
        b"{}", headers=(*JSON, (b"X-Echo", everything_percented(text).encode()))
    ),
    "header in base64": lambda text: response(
        b"{}", headers=(*JSON, (b"X-State", b64(text).encode()))
    ),
    "Location": lambda text: response(
        headers=((b"Location", f"https://a.example/?q={quote(text, safe='')}".encode()),)
    ),
    "Location, encoded twice": lambda text: response(
        headers=(
            (b"Location", f"https://a.example/?q={quote(quote(text, safe=''), safe='')}".encode()),
        )
    ),
    "Link": lambda text: response(
        headers=((b"Link", f'<https://a.example/?q={quote(text, safe="")}>; rel="next"'.encode()),)
    ),
    "JSON": lambda text: answered({"choices": [{"message": {"content": text}}]}),
    "JSON in two chunks": lambda text: response(
        (whole := json.dumps({"q": text}).encode())[:20], whole[20:]
    ),
    "JSON, escaped": lambda text: response(
        json.dumps({"q": text}).replace("/", "\\/").replace("e", "\\u0065").encode()
    ),
    "JSON in a string": lambda text: answered({"q": json.dumps({"q": text})}),
    "tool arguments": lambda text: answered(
        {"tool_calls": [{"function": {"arguments": json.dumps({"q": json.dumps({"q": text})})}}]}
    ),
    "data URL": lambda text: answered({"url": f"data:text/plain;base64,{b64(text)}"}),
    "base64": lambda text: response(b64(text).encode(), headers=TEXT),
    "base64 of base64": lambda text: answered({"state": b64(json.dumps({"of": b64(text)}))}),
    "percent-encoding in JSON": lambda text: answered(
        {"url": f"https://a.example/?q={everything_percented(text)}"}
    ),
    "text": lambda text: response(text.encode(), headers=TEXT),
    "HTML": lambda text: response(
        f"<p title='{text}'>".replace("&", "&amp;").encode(),
        headers=((b"Content-Type", b"text/html"),),
    ),
    "UTF-16": lambda text: response(text.encode("utf-16"), headers=TEXT),
    "octets": lambda text: response(
        b"\xff\xfe\x00\x01" * 9 + text.encode() + b"\x00\xff" * 9,
        headers=((b"Content-Type", b"application/octet-stream"),),
    ),
    "event": lambda text: response(event({"delta": text}), b"data: [DONE]\n\n", headers=EVENTS),
    "event in pieces": lambda text: response(
        *[event(choice(0, piece)) for piece in pieces(text)], headers=EVENTS
    ),
    "choices that take turns": lambda text: response(
        *map(event, taking_turns(text, choice)), headers=EVENTS
    ),
    "tool calls that take turns": lambda text: response(
        *map(event, taking_turns(text, tool_call)), headers=EVENTS
    ),
    "blocks that take turns": lambda text: response(
        *map(event, taking_turns(text, block)), headers=EVENTS
    ),
    "base64 in pieces": lambda text: response(
        *[event(choice(0, piece)) for piece in pieces(b64(text))], headers=EVENTS
    ),
    "arguments in pieces": lambda text: response(
        *[event(tool_call(0, piece)) for piece in pieces(json.dumps({"q": text}))], headers=EVENTS
    ),
    "lines in pieces": lambda text: response(
        *[line({"response": piece}) for piece in pieces(text)], headers=LINES
    ),
    "array in pieces": lambda text: response(
        json.dumps(taking_turns(text, candidate)).encode(), headers=JSON
    ),
    "plain events": lambda text: response(
        *[f"data: {piece}\n\n".encode() for piece in pieces(text, 3)], headers=EVENTS
    ),
    "frames in pieces": lambda text: response(
        *[frame("e", json.dumps({"delta": {"text": piece}}).encode()) for piece in pieces(text)],
        headers=FRAMES,
    ),
    "a model's frames in pieces": lambda text: response(
        *map(model_frame, taking_turns(text, block)), headers=FRAMES
    ),
    "gzip, broken": lambda text: response(
        gzip.compress(text.encode())[:-8], headers=(*TEXT, (b"Content-Encoding", b"gzip"))
    ),
}


def all_carriers() -> Sequence[tuple[str, str]]:
    """Each carrier: `request` or `response`, and its name."""
    return [
        *[("request", name) for name in REQUESTS],
        *[("response", name) for name in RESPONSES],
    ]
