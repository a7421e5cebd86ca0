from tapeway.testing.request import StandInRequest, UploadedPart, form_parts

BODY = (
    b'--b1\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nfine-tune\r\n'
    b'--b1\r\nContent-Disposition: form-data; name="file"; filename="a b.txt"\r\n'
    b"Content-Type: text/plain\r\n\r\nline\r\n\r\n--b\r\n--b1--\r\n"
)


def form(content_type: str) -> list[UploadedPart]:
    call = StandInRequest("POST", "/v1/files", headers={"content-type": content_type}, body=BODY)
    return list(form_parts(call))


def test_parts_keep_their_order_names_and_bytes() -> None:
    assert form("multipart/form-data; boundary=b1") == [
        UploadedPart("purpose", "", b"fine-tune"),
        UploadedPart("file", "a b.txt", b"line\r\n\r\n--b"),
    ]


def test_a_quoted_boundary_is_the_same_boundary() -> None:
    assert form('multipart/form-data; boundary="b1"') == form("multipart/form-data; boundary=b1")


def test_a_body_that_is_no_form_has_no_parts() -> None:
    assert form("application/json") == []
