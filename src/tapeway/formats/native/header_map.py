"""Headers as a JSON object `{name: value or [values]}` that gives back order and bytes."""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import cast

from tapeway.core.json_text import Json
from tapeway.core.model.messages import Headers
from tapeway.core.model.request_fields import stored_fields
from tapeway.core.text import is_utf8
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Fields

NAMES = ("headers", "header_order", "latin1")
"""All fields about headers.

`header_order` is written only where the object alone cannot give back order and case (a name that
comes again later, or in different case); `latin1` names the headers with values outside UTF-8.
"""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_BROKEN = re.compile(r"[\r\n\0]")

_Shown = dict[str, list[str]]
_Left = dict[str, list[tuple[bytes, bytes]]]


def encode(headers: Headers, at: str) -> dict[str, Json]:
    """The fields that give back exactly these headers. Raises FormatFault for invalid headers."""
    if (plain := _plain(headers)) is not None:
        return {"headers": plain}
    latin1 = _not_utf8(headers)
    shown: _Shown = {}
    keys: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name = raw_name.decode("latin-1")
        _check_name(name, (at, "headers", name))
        key = keys.setdefault(name.lower(), name)
        text = raw_value.decode("latin-1" if name.lower() in latin1 else "utf-8")
        _check_value(text, (at, "headers", name))
        shown.setdefault(key, []).append(text)
    fields: dict[str, Json] = {"headers": {name: _value(values) for name, values in shown.items()}}
    order = [name.decode("latin-1") for name, _ in headers]
    if order != [name for name, values in shown.items() for _ in values]:
        fields["header_order"] = [*order]
    if latin1:
        fields["latin1"] = [keys[name] for name in keys if name in latin1]
    return fields


@lru_cache(maxsize=256)
def encode_request(headers: Headers) -> tuple[Mapping[str, Json], dict[str, Json], str]:
    """The header map of a request, the supplementary fields, and the Content-Type.

    Remembered, since a client sends the same fields with nearly every request.
    """
    others = encode(headers, "request")
    shown = cast("Mapping[str, Json]", others.pop("headers"))
    return shown, others, stored_fields(headers).content_type.decode("latin-1")


def _plain(headers: Headers) -> dict[str, Json] | None:
    """Headers that an object can hold unchanged: no name comes twice, and all is valid UTF-8."""
    names = _plain_names(tuple([name for name, _ in headers]))
    try:
        # Together: calls for each field would cost more than the work.
        text = b"\n".join([value for _, value in headers]).decode()
    except UnicodeDecodeError:
        return None
    if names is None or "\r" in text or "\0" in text:
        return None
    texts = text.split("\n") if names else []
    return dict(zip(names, texts, strict=True)) if len(texts) == len(names) else None


@lru_cache(maxsize=1024)
def _plain_names(raw_names: tuple[bytes, ...]) -> tuple[str, ...] | None:
    """The names as texts, None unless all are valid and different; cached for equal messages."""
    names = tuple([raw_name.decode("latin-1") for raw_name in raw_names])
    return names if _all_differ(names) else None


def decode(fields: Fields) -> Headers:
    """The headers in the fields. An edited object wins over a `header_order` that does not fit."""
    if (plain := _decode_plain(fields.values)) is not None:
        return plain
    members = fields.object("headers")
    latin1 = {name.lower() for name in fields.texts("latin1")}
    values: _Left = {}
    for name, raw in members.values.items():
        pointer = (*members.at, name)
        _check_name(name, pointer)
        encoding = "latin-1" if name.lower() in latin1 else "utf-8"
        for text in _texts(raw, pointer):
            field = _shared(_octets_of_name(name), _octets(text, encoding, pointer))
            values.setdefault(name.lower(), []).append(field)
    return (*_ordered(fields.texts("header_order"), values), *_fields_left(values))


def check(fields: Fields) -> None:
    """Raise FormatFault where `decode` would."""
    shown = fields.values.get("headers")
    if isinstance(shown, dict) and "header_order" not in fields.values:
        try:
            # Together: a call for each field would cost more than the work.
            text = "".join(shown.values())  # type: ignore[arg-type] # what is no text raises
        except TypeError:
            text = "\n"
        # Three plain searches are quicker than the pattern.
        is_broken = "\n" in text or "\r" in text or "\0" in text
        if not is_broken and "latin1" not in fields.values and _all_differ(tuple(shown)):
            return
    decode(fields)


def _decode_plain(values: Mapping[str, Json]) -> Headers | None:
    """Headers with different names and texts as values, as in nearly all messages; else None."""
    shown = values.get("headers")
    if not isinstance(shown, dict) or "header_order" in values or "latin1" in values:
        return None
    if not _all_differ(tuple(shown)):
        return None
    fields_in_order: list[tuple[bytes, bytes]] = []
    for name, value in shown.items():
        if not isinstance(value, str) or (field := _field(name, value)) is None:
            return None
        fields_in_order.append(field)
    return _shared_headers(tuple(fields_in_order))


@lru_cache(maxsize=1024)
def _all_differ(names: tuple[str, ...]) -> bool:
    """Whether these are distinct header names; most answers have equal names."""
    return all(map(_TOKEN.fullmatch, names)) and len({name.lower() for name in names}) == len(names)


@lru_cache(maxsize=4096)
def _field(name: str, value: str) -> tuple[bytes, bytes] | None:
    """The field, one object for many recordings; None for a broken value."""
    return None if _BROKEN.search(value) else (_octets_of_name(name), value.encode())


@lru_cache(maxsize=4096)
def _octets_of_name(name: str) -> bytes:
    """The name in octets, one object for many fields."""
    return name.encode("ascii")


@lru_cache(maxsize=256)
def _shared_headers(headers: Headers) -> Headers:
    """The headers, one object for many recordings."""
    return headers


@lru_cache(maxsize=4096)
def _shared(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    """The field, one object for many recordings."""
    return name, value


def _ordered(order: tuple[str, ...], left: _Left) -> Iterator[tuple[bytes, bytes]]:
    for name in order:
        if same_name := left.get(name.lower()):
            yield _shared(_octets_of_name(name), same_name.pop(0)[1])


def _fields_left(left: _Left) -> Iterator[tuple[bytes, bytes]]:
    for same_name in left.values():
        yield from same_name


def _not_utf8(headers: Headers) -> set[str]:
    return {name.decode("latin-1").lower() for name, value in headers if not is_utf8(value)}


def _texts(value: Json, pointer: tuple[str | int, ...]) -> Iterator[str]:
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, str):
            raise FormatFault("must be text or a list of texts", pointer)
        yield item


def _octets(text: str, encoding: str, pointer: tuple[str | int, ...]) -> bytes:
    _check_value(text, pointer)
    try:
        return text.encode(encoding)
    except UnicodeEncodeError:
        raise FormatFault(
            "has a character beyond Latin-1, but 'latin1' names it", pointer
        ) from None


def _check_name(name: str, pointer: tuple[str | int, ...]) -> None:
    if not _TOKEN.fullmatch(name):
        raise FormatFault("is no header name: only letters, digits and -_.!#$%&'*+^`|~", pointer)


def _check_value(text: str, pointer: tuple[str | int, ...]) -> None:
    if _BROKEN.search(text):
        raise FormatFault("a header value cannot hold a line break or NUL", pointer)


def _value(texts: list[str]) -> Json:
    return texts[0] if len(texts) == 1 else [*texts]
