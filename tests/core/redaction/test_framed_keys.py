"""Keys whose length stands before them are found where letters are around them."""

import pytest

from tapeway.core.model.messages import Response, ResponseHead
from tapeway.core.redaction.redactor import Redactor
from tests.core.redaction.key_kinds import KEYS

TOKEN = KEYS["GitHub"].encode()
LONG = b"sk-ant-api03-" + b"aB3dE5fG7h" * 9 + b"aaaaa"
JWT = KEYS["JSON web token"].encode()


def stored(body: bytes, media_type: bytes = b"application/x-protobuf") -> bytes:
    head = ResponseHead(200, headers=((b"content-type", media_type),))
    answer = Redactor("run").response(Response(head, body=body)).body
    assert Redactor("run").response(Response(head, body=answer)).body == answer
    assert len(answer) == len(body)
    return answer


@pytest.mark.parametrize(
    ("before", "key", "behind"),
    [
        # The length is `l`, and the tag of the eighth field is `B`.
        (b"\x0al", LONG, b"B\x03end"),
        (b"\x08\x01\x12l", LONG, b"z\x03end"),
        (b"\x12\x94\x01", JWT, b"B0" + b"x" * 48),
        (b"\xa2dname\x63adaxl", LONG, b"ename2"),
        (b"\x00\x00\x00l", LONG, b"\x00"),
        (b"P", TOKEN, b"P"),
        (b"\xd9l", LONG, b"\x01"),
        (b"\xd8\x01", LONG, b"\x06end"),
    ],
)
def test_a_key_begins_and_ends_where_its_length_says(
    before: bytes, key: bytes, behind: bytes
) -> None:
    answer = stored(before + key + behind)

    assert answer.startswith(before + b"REDACTED.")
    assert answer.endswith(behind)
    assert key not in answer


@pytest.mark.parametrize(
    "before", [b' "', b"\0 ", b'\0\0"', b"=", b"\x12 ", b"\xef\xbc\x9a", b"\n'"]
)
def test_signs_before_a_key_in_a_text_are_no_length(before: bytes) -> None:
    answer = stored(b"\0file" + before + LONG + b"\0", b"application/x-tar")

    assert answer.startswith(b"\0file" + before + b"REDACTED.anthropic-key---")
    assert b"aB3d" not in answer


def test_letters_before_a_key_in_base64_are_no_length() -> None:
    body = b"AAAAAAMKAWEAAAAAKgooZ2hwX0NsUDJjM1JTN2tuSmJybHJpZld3NXVtUng2OW1jc1dJanpUTwAA"

    assert b"REDACTED" not in stored(body, b"application/grpc-web-text")
