"""A request for the code of the providers: JSON, uploaded form, credential.

A client's JSON may have any shape. A value of an unexpected type reads as absent.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import orjson
from aiohttp import BodyPartReader, MultipartReader, StreamReader
from aiohttp.base_protocol import BaseProtocol

JsonObject = dict[str, object]
_ERROR_MODEL = re.compile(r"error-([45]\d\d)")
_CREDENTIAL_HEADERS = (
    "x-amz-security-token",  # beside it, Authorization is only a signature
    "authorization",
    "x-api-key",
    "api-key",
    "x-goog-api-key",
)


def at(value: object, *path: str | int) -> object:
    """The value at the path, or None."""
    for step in path:
        if isinstance(step, str) and isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(step, int) and isinstance(value, list) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return None
    return value


def parsed(body: bytes) -> JsonObject:
    """The JSON object in a body, empty for any other body."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def text_at(value: object, *path: str | int) -> str:
    """The string at the path, or an empty one."""
    member = at(value, *path)
    return member if isinstance(member, str) else ""


def int_at(value: object, *path: str | int, default: int) -> int:
    """The integer at the path, or the default."""
    member = at(value, *path)
    return member if isinstance(member, int) and not isinstance(member, bool) else default


def list_at(value: object, *path: str | int) -> list[object]:
    """The list at the path, or an empty one."""
    member = at(value, *path)
    return list(member) if isinstance(member, list) else []


def objects_at(value: object, *path: str | int) -> Iterator[JsonObject]:
    """The items of the list at the path that are objects."""
    for item in list_at(value, *path):
        if isinstance(item, dict):
            yield item


def tokens(text: str) -> int:
    """A count of tokens that grows with the text."""
    return max(1, (len(text) + 3) // 4)


def content_text(message: object) -> str:
    """The text of a message whose `content` is a string or a list of parts."""
    parts = [text_at(part, "text") for part in objects_at(message, "content")]
    return text_at(message, "content") or "".join(parts)


@dataclass(frozen=True, slots=True)
class UploadedPart:
    """One field of a form; `filename` is empty for a plain value."""

    name: str
    filename: str
    content: bytes


@dataclass(frozen=True, slots=True)
class StandInRequest:
    """The path is percent-decoded and the body content-decoded; `params` come from the route.

    `parts` are the fields of an uploaded form.
    """

    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    json: JsonObject = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    parts: tuple[UploadedPart, ...] = ()

    @property
    def model(self) -> str:
        """The model that path or body names."""
        return self.params.get("model") or text_at(self.json, "model")

    @property
    def tokens(self) -> int:
        """The tokens of the body."""
        return tokens(self.body.decode(errors="replace"))

    @property
    def requested_error(self) -> int | None:
        """The error that the model's name asks for: 429 for `error-429`."""
        match = _ERROR_MODEL.fullmatch(self.model)
        return int(match[1]) if match else None

    @property
    def credential(self) -> str:
        """The caller's key without its scheme; empty if there is none."""
        for name in _CREDENTIAL_HEADERS:
            if value := self.headers.get(name):
                return value.rpartition(" ")[2]
        return self.query.get("key", "")


async def form_parts(content_type: str, body: bytes) -> tuple[UploadedPart, ...]:
    """The fields of a form in order; none if the body is no form (RFC 7578)."""
    if not content_type.lower().startswith("multipart/form-data"):
        return ()
    stream = StreamReader(BaseProtocol(asyncio.get_running_loop()), limit=len(body))
    stream.feed_data(body)
    stream.feed_eof()
    parts: list[UploadedPart] = []
    # aiohttp raises ValueError for a broken form: the fields before that point count.
    with suppress(ValueError):
        async for part in MultipartReader({"Content-Type": content_type}, stream):
            if isinstance(part, BodyPartReader):
                content = bytes(await part.read())
                parts.append(UploadedPart(part.name or "", part.filename or "", content))
    return tuple(parts)
