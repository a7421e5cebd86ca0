"""The values that travel."""

import pytest

from tapeway.core.model.messages import Request, Response, ResponseChunk, ResponseHead


@pytest.mark.parametrize("pieces", [(), (b"",), (b"one",), (b"one", b"", b"two")])
def test_a_body_is_all_its_chunks(pieces: tuple[bytes, ...]) -> None:
    response = Response(ResponseHead(200), tuple([ResponseChunk(piece) for piece in pieces]))

    assert response.body == b"".join(pieces)


def test_a_response_has_the_status_and_fields_of_its_head() -> None:
    response = Response(ResponseHead(418, headers=((b"a", b"b"),)))

    assert (response.status, response.headers) == (418, ((b"a", b"b"),))


@pytest.mark.parametrize(
    ("base", "url"), [("https://host/base", "https://host/base/x?y=1"), ("", "/x?y=1")]
)
def test_a_url_is_the_base_and_the_target_as_they_are(base: str, url: str) -> None:
    assert Request("openai", "GET", "/x?y=1", base=base).url == url
