"""Which of tapeway's own errors tell an SDK not to ask again."""

import pytest

from tapeway.errors import Draining, StoreError, StoreFull, TapewayError, UpstreamError
from tapeway.server.error_responses import of_error


@pytest.mark.parametrize(
    ("error", "retries"),
    [
        (StoreError("the cassette cannot be written"), [b"false"]),
        (StoreFull("the disk is full"), [b"false"]),
        (UpstreamError("it cannot be reached"), []),
        (Draining("tapeway is stopping"), []),
    ],
    ids=lambda each: type(each).__name__,
)
def test_only_an_answer_that_could_not_be_kept_is_not_to_be_asked_for_again(
    error: TapewayError, retries: list[bytes]
) -> None:
    answer = of_error(error, request_id="tw-1", tapeway={}, ollama=False)

    assert [value for name, value in answer.headers if name == b"x-should-retry"] == retries
