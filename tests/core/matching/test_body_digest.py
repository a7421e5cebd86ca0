"""A body too large for memory is the same to matching however it was cut on its way."""

import hashlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapeway.core.http import forms
from tapeway.core.matching import body_digest
from tapeway.core.matching.body_digest import BodyDigester, digest_body
from tapeway.core.matching.key import request_key
from tapeway.core.model.messages import BodyFile, Headers, PartDigest, Request
from tapeway.core.model.request_fields import RequestFields
from tests.support.memory import measured_memory

BOUNDARY = b"multipart/form-data; boundary=B-x"
MULTIPART: Headers = ((b"Content-Type", BOUNDARY),)

# What a parser could trip over: delimiters, half ones, line ends, padding, heads.
shards = st.sampled_from(
    [
        *(b"\r\n--B-x", b"--B-x", b"--B-x--", b"--", b"\r", b"\n", b"\r\n", b"\r\n\r\n", b"B-x"),
        *(b" ", b"\t", b" " * 250, b"x", b"-", b"\r\n--B-", b"\0"),
        b"\r\n--B-x\r\n",
        b'\r\n--B-x\r\nContent-Disposition: form-data; name="a"\r\n\r\n',
        b'\r\n--B-x \r\nContent-Disposition: form-data; name="f"; filename="x.bin"\r\n'
        b"Content-Type: audio/wav\r\n\r\n",
        b"\r\n--B-x--",
    ]
)
bodies = st.lists(shards | st.binary(max_size=4), max_size=12).map(b"".join)
sizes = st.lists(st.integers(1, 40), min_size=1, max_size=30)


def cut(body: bytes, lengths: list[int]) -> list[bytes]:
    pieces, start = [], 0
    for length in lengths:
        pieces.append(body[start : start + length])
        start += length
    return [*pieces, body[start:]]


def read(headers: Headers, pieces: list[bytes]) -> BodyFile:
    digester = BodyDigester(RequestFields(headers))
    for piece in pieces:
        digester.feed(piece)
    return digester.finish()


@given(bodies, sizes)
@example(b"\r\n--B-x\r\n\r\none\r\n--B-x--", [1] * 30)
@example(b"--B-x\r\nA: b\r\n\r\n\r\n--B-x\r\n\r\n\r\n--B-x--\r\nafter", [3] * 30)
def test_the_parts_are_the_same_however_the_body_is_cut(body: bytes, lengths: list[int]) -> None:
    whole = forms.parse_multipart(BOUNDARY, body)

    found = read(MULTIPART, cut(body, lengths))

    assert (found.size, found.digest) == (len(body), hashlib.sha256(body).hexdigest())
    assert found.parts == (
        None
        if whole is None
        else tuple(
            [
                PartDigest(
                    part.name,
                    part.filename,
                    part.content_type,
                    hashlib.sha256(part.body).hexdigest(),
                )
                for part in whole
            ]
        )
    )


def test_a_body_that_is_not_multipart_has_no_parts() -> None:
    body = b'--B-x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--B-x--\r\n'

    assert digest_body(RequestFields(MULTIPART), body).parts is not None
    assert digest_body(RequestFields(((b"Content-Type", b"text/plain"),)), body).parts is None
    assert (
        digest_body(RequestFields((*MULTIPART, (b"Content-Encoding", b"gzip"))), body).parts is None
    )
    assert digest_body(RequestFields(((b"Content-Type", b"multipart/mixed"),)), body).parts is None


def test_a_head_without_an_end_does_not_fill_the_memory() -> None:
    digester = BodyDigester(RequestFields(MULTIPART))
    digester.feed(b"--B-x\r\n")
    with measured_memory() as memory:
        for _ in range(50):
            digester.feed(b"A: " + b"x" * 65_536)

    assert memory.held < 8 * forms.MAX_HEAD < 50 * 65_536
    assert digester.finish().parts is None


@pytest.mark.parametrize(
    ("headers", "most"),
    [
        (((b"content-type", b"application/json"),), body_digest.LARGE_JSON),
        (((b"content-type", b"application/vnd.x+json; charset=utf-8"),), body_digest.LARGE_JSON),
        (((b"content-type", b"application/x-www-form-urlencoded"),), body_digest.LARGE_JSON),
        (MULTIPART, 1024 * 1024),
        ((), 1024 * 1024),
        (
            ((b"content-type", b"application/json"), (b"content-encoding", b"gzip")),
            1024 * 1024,
        ),
    ],
)
def test_only_what_is_read_by_value_stays_in_memory_longer(headers: Headers, most: int) -> None:
    assert body_digest.largest_in_memory(RequestFields(headers)) == most


def upload(boundary: bytes, content: bytes, *, in_memory: bool) -> Request:
    body = (
        b'--%b\r\nContent-Disposition: form-data; name="f"; filename="a.wav"\r\n'
        b"Content-Type: audio/wav\r\n\r\n%b\r\n--%b--\r\n" % (boundary, content, boundary)
    )
    headers = ((b"Content-Type", b"multipart/form-data; boundary=" + boundary),)
    request = Request("openai", "POST", "/v1/audio/transcriptions", headers)
    if in_memory:
        return Request(request.route, request.method, request.target, headers, body)
    file = digest_body(RequestFields(headers), body)
    return Request(request.route, request.method, request.target, headers, file=file)


def test_a_large_upload_has_one_key_whatever_its_boundary_and_framing() -> None:
    content = b"sound" * 300_000
    key = request_key(upload(b"one", content, in_memory=False))

    assert request_key(upload(b"two", content, in_memory=False)) == key
    assert request_key(upload(b"three", content, in_memory=True)) == key
    assert request_key(upload(b"one", content + b"!", in_memory=False)) != key


def test_a_large_binary_body_has_one_key_in_memory_and_in_a_file() -> None:
    body = bytes(range(256)) * 5000
    headers = ((b"content-type", b"application/octet-stream"),)
    in_file = Request(
        "openai", "PUT", "/v1/x", headers, file=digest_body(RequestFields(headers), body)
    )

    assert request_key(in_file) == request_key(Request("openai", "PUT", "/v1/x", headers, body))
    assert request_key(in_file) != request_key(
        Request("openai", "PUT", "/v1/x", headers, body[:-1] + b"!")
    )
