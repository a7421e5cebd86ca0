import base64
import gzip
import json
import sys
import zlib
from collections.abc import Callable
from urllib.parse import quote

import brotli  # type: ignore[import-untyped]
import pytest

from tests.support.canary import canary, sightings

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


def bare_deflate(data: bytes) -> bytes:
    coder = zlib.compressobj(wbits=-15)
    return coder.compress(data) + coder.flush()


def token_by_token(value: str, event: str) -> bytes:
    tokens = [value[start : start + 4] for start in range(0, len(value), 4)]
    return "".join(event % json.dumps(token) for token in tokens).encode()


def cut(stream: bytes) -> list[str]:
    return [stream[start : start + 23].decode() for start in range(0, len(stream), 23)]


VALUE = "key-0123456789/abcdef+fedcba=="

PLANTS: dict[str, Callable[[str], bytes]] = {
    "itself": lambda v: v.encode(),
    "base64": lambda v: base64.b64encode(v.encode()),
    "base64 behind one byte": lambda v: base64.b64encode(b"x" + v.encode() + b"tail"),
    "base64 behind two bytes": lambda v: base64.b64encode(b"xy" + v.encode() + b"t"),
    "base64 in the middle": lambda v: base64.b64encode(b"Bearer " + v.encode() + b"\r\n"),
    "base64url": lambda v: base64.urlsafe_b64encode(b"?>" + v.encode() + b"<?"),
    "base64 of a Basic login": lambda v: base64.b64encode(f"user:{v}".encode()),
    "hex": lambda v: v.encode().hex().encode(),
    "upper-case hex": lambda v: v.encode().hex().upper().encode(),
    "percent-encoding": lambda v: quote(v, safe="").encode(),
    "lower-case percent-encoding": lambda v: quote(v, safe="").replace("%2F", "%2f").replace("%2B", "%2b").replace("%3D", "%3d").encode(),
    "percent-encoding of every byte": lambda v: "".join(f"%{b:02X}" for b in v.encode()).encode(),
    "JSON": lambda v: json.dumps({"a": v}).encode(),
    "JSON with escaped slashes": lambda v: json.dumps(v).replace("/", "\\/").encode(),
    "JSON escapes": lambda v: "".join(f"\\u{b:04x}" for b in v.encode()).encode(),
    "gzip": lambda v: gzip.compress(b"before " + v.encode() + b" after"),
    "gzip cut short": lambda v: gzip.compress(v.encode() + b" after" * 50)[:-9],
    "gzip in base64": lambda v: b'"' + base64.b64encode(gzip.compress(v.encode() * 3)) + b'"',
    "gzip in hex": lambda v: gzip.compress(v.encode()).hex().encode(),
    "gzip behind something else": lambda v: b"head\r\n\r\n" + gzip.compress(v.encode()) + b"rest",
    "deflate": lambda v: zlib.compress(v.encode()),
    "deflate in base64": lambda v: base64.b64encode(zlib.compress(v.encode())),
    "bare deflate in base64": lambda v: base64.b64encode(bare_deflate(v.encode())),
    "brotli in base64": lambda v: base64.b64encode(brotli.compress(v.encode())),
    "brotli in base64url": lambda v: base64.urlsafe_b64encode(brotli.compress(v.encode() * 2)),
    "zstd": lambda v: b"PK" + zstd.compress(v.encode()),
    "zstd in base64": lambda v: base64.b64encode(zstd.compress(v.encode())),
    "base64 inside gzip inside base64": lambda v: base64.b64encode(gzip.compress(base64.b64encode(v.encode()))),
    "JSON with some characters escaped": lambda v: json.dumps({"a": v}).replace("+", "\\u002b").encode(),
    "percent-encoding of some characters": lambda v: v.replace("+", "%2b").encode(),
    "a login with the password first": lambda v: base64.b64encode(f"{v}:user".encode()),
    "fields in another order": lambda v: json.dumps({"value": v, "name": "authorization"}).encode(),
    "server-sent events": lambda v: token_by_token(v, 'data: {"choices":[{"delta":{"content":%s}}]}\n\n'),
    "named events with CRLF": lambda v: token_by_token(v, 'event: delta\r\ndata: {"delta":%s}\r\n\r\n'),
    "NDJSON": lambda v: token_by_token(v, '{"message":{"content":%s},"done":false}\n'),
    "events in a cassette's text": lambda v: json.dumps({"text": token_by_token(v, 'data: {"text":%s}\n\n').decode()}).encode(),
    "events in chunks": lambda v: json.dumps({"chunks": cut(token_by_token(v, 'data: {"text":%s}\n\n'))}).encode(),
    "events, compressed, in base64": lambda v: base64.b64encode(brotli.compress(token_by_token(v, 'data: {"text":%s}\n\n'))),
    "a line of a log": lambda v: json.dumps({"level": "debug", "message": f"asked with {v}"}).encode(),
    "a line of a journal": lambda v: b'9f1c20aa 1 0 {"interaction":{"request":{"body_b64":"%s"}}}' % base64.b64encode(v.encode()),
}  # fmt: skip


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS.keys())
def test_another_value_is_not_taken_for_it(plant: Callable[[str], bytes]) -> None:
    other = VALUE[::-1]

    assert sightings({"the key": VALUE}, {"place": plant(other)}) == []


def test_a_fresh_canary_changes_under_percent_encoding_and_is_new() -> None:
    value = canary("sk")

    assert quote(value, safe="") != value
    assert value != canary("sk")
    assert value.startswith("sk-")
    assert len(value) > 16


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS.keys())
def test_a_planted_canary_is_seen_among_other_lines(plant: Callable[[str], bytes]) -> None:
    dirty = b"line before\n\n" + plant(VALUE) + b"\n\nline behind\n"

    assert sightings({"the key": VALUE}, {"dirty": dirty})


def test_each_sighting_tells_what_it_saw_and_where() -> None:
    packed = b"x " + base64.b64encode(gzip.compress(b"key=" + VALUE.encode()))

    lines = sightings({"the key": VALUE}, {"cassette": packed})

    assert "the key as itself in cassette, base64 0, gzip at 0 at byte 4" in lines
