"""What a request's header says."""

from tapeway.core.http import headers
from tapeway.core.model.messages import Headers

EVERYTHING: Headers = (
    (b"Host", b"localhost:8080"),
    (b"EXPECT", b"100-continue"),
    (b"Upgrade", b"h2c"),
    (b"Tapeway-Cassette", b"smoke"),
    (b"Content-Type", b"application/json"),
    (b"content-type", b"text/plain"),
    (b"Content-Encoding", b"gzip"),
    (b"Authorization", b"Bearer 0123456789abc"),
)


def test_a_header_is_read_in_any_case_and_the_first_field_counts() -> None:
    read = headers.request_fields(EVERYTHING)

    assert (read.host, read.expect, read.upgrade) == (b"localhost:8080", b"100-continue", b"h2c")
    assert (read.cassette, read.content_type) == (b"smoke", b"application/json")
    assert read.content_encoding == b"gzip"
    assert read.stored == EVERYTHING[4:7]
    assert read.unreadable is None


def test_what_is_not_there_is_none() -> None:
    read = headers.request_fields(())

    assert (read.host, read.expect, read.upgrade, read.cassette) == (None,) * 4
    assert (read.content_type, read.content_encoding, read.stored) == (b"", None, ())


def test_a_field_that_cannot_be_carried_is_named() -> None:
    assert headers.request_fields((*EVERYTHING, (b"X-Odd", b"\xff"))).unreadable == "X-Odd"


def test_what_was_read_shows_no_credential_when_printed() -> None:
    assert "0123456789abc" not in repr(headers.request_fields(EVERYTHING))
