"""Secrets made up for one test, and the search for them in everything a process produced."""

import base64
import json
import random
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import re2  # type: ignore[import-untyped]

from tapeway.core.redaction.opaque import has_key_form
from tests.support.unwrapping import unwrapped


def canary(label: str = "") -> str:
    """A value that no other call gives, with the characters that encodings change.

    Without a label it has the form of a key, so that it is one under any name.
    """
    while True:
        first, second, third = [random.randbytes(size).hex() for size in (8, 4, 8)]
        value = f"{label or 'zq7kw3'}-{first}/{second}+{third}"
        if label or has_key_form(value.encode()):
            return value


def sightings(canaries: Mapping[str, str], places: Mapping[str, bytes]) -> list[str]:
    """One line for each canary seen, with its name, its encoding and the place; none is good.

    Looks for the value itself, its base64 in all three alignments and both alphabets, hex,
    percent-encoding, JSON escapes, and all of these inside what `unwrapped` takes apart.
    """
    needles = [
        (name, encoding, needle)
        for name, value in canaries.items()
        for encoding, needle in encodings(value)
    ]
    # One pass over each place, whatever the number of needles; hits are looked at one by one.
    any_of_them = _finder(tuple(needle for _, _, needle in needles))
    return [
        f"{name} as {encoding} in {where} at byte {found}"
        for place, content in places.items()
        if any_of_them.search(_everything(content))
        for where, searched in ((place, content), *_inside(place, content))
        for name, encoding, needle in needles
        if (found := searched.find(needle)) >= 0
    ]


@lru_cache(maxsize=64)
def _finder(needles: tuple[bytes, ...]) -> Any:
    options = re2.Options()
    # With less it falls back to a search that is a hundred times as slow.
    options.max_mem = 2**28
    options.encoding = re2.Options.Encoding.LATIN1
    return re2.compile(b"|".join(re2.escape(needle) for needle in needles), options)


@lru_cache(maxsize=2048)
def _everything(content: bytes) -> bytes:
    return b"\0\0\0".join([content, *(inner for _, inner in unwrapped(content))])


def _inside(place: str, content: bytes) -> Iterator[tuple[str, bytes]]:
    for how, inner in unwrapped(content):
        yield f"{place}, {how}", inner


def encodings(value: str) -> Iterator[tuple[str, bytes]]:
    """Every encoding in which a value can stand in bytes, with its name."""
    raw = value.encode()
    yield "itself", raw
    for before in range(3):
        yield f"base64 behind {before} bytes", _base64_core(raw, before)
        yield f"base64url behind {before} bytes", _urlsafe(_base64_core(raw, before))
    yield "hex", raw.hex().encode()
    yield "upper-case hex", raw.hex().upper().encode()
    percented = quote(value, safe="")
    yield "percent-encoding", percented.encode()
    yield "lower-case percent-encoding", re.sub("%..", lambda m: m[0].lower(), percented).encode()
    yield "percent-encoding of every byte", "".join(f"%{byte:02X}" for byte in raw).encode()
    yield "JSON", json.dumps(value)[1:-1].encode()
    yield "JSON with escaped slashes", json.dumps(value)[1:-1].replace("/", "\\/").encode()
    yield "JSON escapes", "".join(f"\\u{byte:04x}" for byte in raw).encode()


def _base64_core(raw: bytes, before: int) -> bytes:
    # Those characters that depend on no neighbour: six bits each, all of them ours.
    coded = base64.b64encode(b"\0" * before + raw + b"\0\0")
    first = (before * 8 + 5) // 6
    return coded[first : (before + len(raw)) * 8 // 6]


def _urlsafe(coded: bytes) -> bytes:
    return coded.replace(b"+", b"-").replace(b"/", b"_")
