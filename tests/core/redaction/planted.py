"""Bodies of every kind with a secret planted in them, for properties of redaction."""

import base64
import json
from itertools import pairwise
from typing import Literal
from urllib.parse import quote, quote_plus

from hypothesis import strategies as st

from tapeway.core.json_text import Json
from tapeway.core.redaction.opaque import is_opaque, is_stand_in

TYPES = {
    "json": b"application/json",
    "lines": b"application/x-ndjson",
    "events": b"text/event-stream",
    "form": b"application/x-www-form-urlencoded",
    "parts": b"multipart/form-data; boundary=b0undary",
    "text": b"text/plain",
}
Kind = Literal["json", "lines", "events", "form", "parts", "text"]
kinds = st.sampled_from(sorted(TYPES))

# Characters that every writer changes are among them, and no letters that a pattern begins with.
secrets = st.from_regex(r"[B-Zb-z0-9_/+.~-]{14,30}[B-Zb-z0-9]={0,2}", fullmatch=True).filter(
    lambda drawn: is_opaque(drawn.encode())
)
NAMES = ("api_key", "apiKey", "X-Api-Key", "password", "client_secret", "clientSecret")
ISSUED = ("access_token", "refreshToken", "SecretAccessKey", "id_token", "client_secret")

PATTERNS = (
    "sk-proj-{}",
    "sk-ant-api03-{}",
    "sk-1{}",
    "gsk_1{}",
    "hf_1{}",
    "ek_1{}",
    "r8_1{}",
    "xai-1{}",
    "ghp_{}",
    "ya29.{}",
    "xoxb-1{}",
    "sk_live_{}",
    "eyJ{0}.eyJ{0}.{0}",
    "-----BEGIN PRIVATE KEY-----\n{0}\n{0}\n-----END PRIVATE KEY-----",
)
pattern_secrets = st.builds(
    str.format,
    st.sampled_from(PATTERNS),
    st.from_regex(r"[A-Za-z0-9]{32}", fullmatch=True),
) | st.builds(str.__add__, st.just("AIza"), st.from_regex(r"[A-Za-z0-9]{35}", fullmatch=True))
# Documentation writes `sk-xxxxxxxx` for a key.
pattern_secrets = pattern_secrets.filter(lambda drawn: not is_stand_in(drawn))

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def documents(draw: st.DrawFn, planted: Json, name: str | None = None) -> Json:
    """JSON with a value somewhere in it, under a name or under any."""
    holder: Json = {draw(text) if name is None else name: planted}
    for _ in range(draw(st.integers(0, 3))):
        others = draw(st.lists(values, max_size=2))
        place = draw(st.integers(0, len(others)))
        if draw(st.booleans()):
            holder = [*others[:place], holder, *others[place:]]
        else:
            holder = dict([*[(f"k{at}", other) for at, other in enumerate(others)], ("in", holder)])
    return holder


def written(draw: st.DrawFn, document: Json) -> str:
    """A document as one of many writers puts it."""
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,", " : ")]))
    result = json.dumps(document, ensure_ascii=draw(st.booleans()), separators=separators)
    return result.replace("/", "\\/") if draw(st.booleans()) else result


@st.composite
def bodies(draw: st.DrawFn, kind: str, planted: str, name: str | None = None) -> bytes:
    """A body of a kind that holds the text, under a name or anywhere."""
    field = draw(st.sampled_from(["a", "b c", "ü"])) if name is None else name
    if kind == "form":
        pairs = [("x", draw(text)), (field, planted), ("y", draw(text))]
        return "&".join([f"{quote_plus(key)}={quote_plus(value)}" for key, value in pairs]).encode()
    if kind == "text":
        return f"{draw(text)} {planted} {draw(text)}".encode()
    if kind == "parts":
        head = f'Content-Disposition: form-data; name="{field}"'
        part = "--b0undary\r\nContent-Disposition: form-data; name=f; filename=g\r\n\r\n1\r\n"
        return f"{part}--b0undary\r\n{head}\r\n\r\n{planted}\r\n--b0undary--\r\n".encode()
    documents_ = [draw(documents(planted, name)) if at == 1 else draw(values) for at in range(3)]
    lines = [written(draw, document) for document in documents_]
    if kind == "json":
        return lines[1].encode()
    if kind == "lines":
        return "".join([f"{line}\n" for line in lines]).encode()
    return "".join([f"event: e\ndata: {line}\n\n" for line in lines]).encode() + b"data: [DONE]\n\n"


def cut(body: bytes, cuts: list[int]) -> list[bytes]:
    """The body in pieces."""
    borders = sorted(at % (len(body) + 1) for at in cuts)
    return [body[start:end] for start, end in pairwise([0, *borders, len(body)])]


def wrapped(secret: str, way: int, before: bytes, behind: bytes) -> str:
    """The secret among other bytes, in base64 of either alphabet or in hex."""
    content = before + secret.encode() + behind
    if way == 0:
        return base64.b64encode(content).decode()
    if way == 1:
        return base64.urlsafe_b64encode(content).decode().rstrip("=")
    return content.hex() if way == 2 else content.hex().upper()


def percented(secret: str) -> str:
    """Every reserved character of it encoded."""
    return quote(secret, safe="")


def documents_of(kind: str, body: bytes) -> list[Json]:
    """Every JSON text of the body, read; raises where one is broken."""
    lines = body.decode().split("\n")
    if kind == "json":
        return [json.loads(body)]
    if kind == "lines":
        return [json.loads(line) for line in lines if line]
    if kind == "events":
        texts = [line[6:] for line in lines if line.startswith("data: ")]
        return [json.loads(line) for line in texts if line != "[DONE]"]
    return []
