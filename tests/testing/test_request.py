"""A request as a provider's code sees it: its JSON and its uploaded parts."""

import pytest

from tapeway.testing.request import (
    UploadedPart,
    at,
    form_parts,
    int_at,
    list_at,
    objects_at,
    text_at,
)

TREE = {"a": [{"b": "x"}, 7, True], "n": 3}
BODY = (
    b'--b1\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nfine-tune\r\n'
    b'--b1\r\nContent-Disposition: form-data; name="file"; filename="a b.txt"\r\n'
    b"Content-Type: text/plain\r\n\r\nline\r\n\r\n--b\r\n--b1--\r\n"
)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (("a", 0, "b"), "x"),
        (("a", -1), True),
        (("a", 3), None),
        (("a", "b"), None),
        (("n", "deeper"), None),
        ((), TREE),
    ],
)
def test_a_path_leads_to_its_value_or_to_none(path: tuple[str | int, ...], found: object) -> None:
    assert at(TREE, *path) == found


def test_a_value_of_another_type_reads_as_absent() -> None:
    assert text_at(TREE, "n") == ""
    assert int_at(TREE, "a", 2, default=9) == 9
    assert list_at(TREE, "n") == []
    assert list(objects_at(TREE, "a")) == [{"b": "x"}]


async def test_parts_keep_their_order_names_and_bytes() -> None:
    assert await form_parts("multipart/form-data; boundary=b1", BODY) == (
        UploadedPart("purpose", "", b"fine-tune"),
        UploadedPart("file", "a b.txt", b"line\r\n\r\n--b"),
    )


async def test_a_quoted_boundary_is_the_same_boundary() -> None:
    quoted = await form_parts('multipart/form-data; boundary="b1"', BODY)

    assert quoted == await form_parts("multipart/form-data; boundary=b1", BODY)


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json", BODY),
        ("multipart/form-data", BODY),
        ("multipart/form-data; boundary=b1", b"no form"),
        ("multipart/form-data; boundary=b1", b""),
    ],
)
async def test_a_body_that_is_no_form_has_no_parts(content_type: str, body: bytes) -> None:
    assert await form_parts(content_type, body) == ()
