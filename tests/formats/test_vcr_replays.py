"""VCR.py itself replays what is written in its format, and refuses what it has given out."""

import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import httpx
import pytest
import vcr as vcrpy  # type: ignore[import-untyped, unused-ignore]
from vcr.errors import (  # type: ignore[import-untyped, unused-ignore]
    CannotOverwriteExistingCassetteException,
)

from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Headers, Request, Response, ResponseChunk, ResponseHead
from tapeway.formats.other_tools.http_call import keyed
from tests.formats.others import FRESH, kind, load

BASE = "http://api.example"
ALL = ["method", "scheme", "host", "port", "path", "query", "body"]


def call(
    method: str, target: str, body: bytes, status: int, *chunks: bytes, headers: Headers = ()
) -> Interaction:
    framing = "chunked" if len(chunks) > 1 else "length"
    answer = Response(
        ResponseHead(status, "Fine", headers, framing),  # type: ignore[arg-type]
        tuple([ResponseChunk(each) for each in chunks]),
    )
    return keyed(Interaction(0, Request("", method, target, (), body, BASE), answer))


CALLS = (
    call("GET", "/a?x=1&y=%C3%A9", b"", 200, "été".encode(), headers=((b"Set-Cookie", b"a=1"),)),
    call("GET", "/a?x=1&y=%C3%A9", b"", 200, b"second"),
    call("GET", "/image", b"", 200, bytes(range(256))),
    call("POST", "/p", '{"q":"é"}'.encode(), 201, b'{"ok": 1.0}'),
    call("POST", "/p", b"\xff\xfe", 500, b"no\r\n\x85\t1e5"),
    call("GET", "/events", b"", 200, b"data: 1\n\n", b"data: \xc3", b"\xa9\n\n"),
    call("DELETE", "/gone", b"", 204),
)


def play(file: Path, **more: Any) -> Any:
    return vcrpy.VCR(record_mode="none", match_on=ALL, **more).use_cassette(str(file))


def ask(item: Interaction) -> tuple[int, bytes]:
    request = urllib.request.Request(  # noqa: S310 - nothing is asked
        item.request.url, item.request.body or None, method=item.request.method
    )
    try:
        with urllib.request.urlopen(request) as answer:  # noqa: S310
            return answer.status, answer.read()
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, exc.read()


@pytest.mark.parametrize("name", ["vcr", "vcr-json"])
def test_it_gives_each_recording_once_and_in_order(name: str, tmp_path: Path) -> None:
    save = kind(name).save
    assert save is not None
    items = [item for item in CALLS if name == "vcr" or _is_text(item)]
    saved = save(StoredCassette(CassetteHead("", "r", {"repeats": "miss"}), tuple(items)))
    assert saved.losses == ()
    file = tmp_path / "cassette"
    file.write_bytes(saved.text)

    with play(file, serializer="yaml" if name == "vcr" else "json") as cassette:
        assert [ask(item) for item in items] == [
            (item.response.status, item.response.body) for item in items
        ]
        assert cassette.all_played
        with pytest.raises(CannotOverwriteExistingCassetteException):
            ask(items[0])
    assert (
        load(name, saved.text).cassette.interactions
        == load(name, file.read_bytes()).cassette.interactions
    )


def test_a_body_without_bytes_stays_one(tmp_path: Path) -> None:
    # httpx sends one, and VCR.py tells it from none where it matches bodies.
    text = (
        b"version: 1\ninteractions:\n- request: {method: GET, uri: 'http://api.example/x', "
        b"body: '', headers: {}}\n  response: {status: {code: 200, message: OK}, headers: {}, "
        b"body: {string: fine}}\n"
    )
    save = kind("vcr").save
    assert save is not None
    file = tmp_path / "cassette"
    file.write_bytes(save(kind("vcr").load(text, FRESH).cassette).text)

    with play(file):
        assert httpx.get(BASE + "/x").text == "fine"


def _is_text(item: Interaction) -> bool:
    try:
        return bool((item.request.body + item.response.body).decode()) or True
    except UnicodeDecodeError:
        return False
