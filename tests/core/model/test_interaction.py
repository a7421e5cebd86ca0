"""What finds a recording again under another number."""

from dataclasses import replace

import pytest

from tapeway.core.model.interaction import Interaction, fingerprint
from tapeway.core.model.messages import BodyFile, ChunkTimes, Failure
from tests.support.exchanges import interaction

ITEM = interaction(target="/v1/x?a=1", request_body=b'{"q": 1}')
RESPONSE = ITEM.response


@pytest.mark.parametrize(
    "same",
    [
        replace(ITEM, index=7, latency_ms=3.0, tags=("x",), match_key="k", metadata={}),
        replace(ITEM, request=replace(ITEM.request, headers=(), route="other")),
        # A route takes a part of the path to its base.
        replace(ITEM, request=replace(ITEM.request, base="https://u:p@other/v1", target="/x?a=1")),
        replace(
            ITEM,
            response=RESPONSE.with_arrivals(ChunkTimes([(9.0, 1)] * len(RESPONSE.body))),
        ),
    ],
)
def test_number_times_headers_and_host_do_not_matter(same: Interaction) -> None:
    base = replace(ITEM, request=replace(ITEM.request, base="https://here", target="/v1/x?a=1"))

    if same.request.base == ITEM.request.base:
        assert fingerprint(same) == fingerprint(ITEM)
    else:
        assert fingerprint(same) == fingerprint(base)


@pytest.mark.parametrize(
    "other",
    [
        replace(ITEM, request=replace(ITEM.request, method="PUT")),
        replace(ITEM, request=replace(ITEM.request, target="/v1/x?a=2")),
        replace(ITEM, request=replace(ITEM.request, body=b'{"q": 2}')),
        replace(ITEM, request=replace(ITEM.request, file=BodyFile("", 3, "ab" * 32))),
        replace(ITEM, response=replace(RESPONSE, head=replace(RESPONSE.head, status=201))),
        replace(ITEM, response=replace(RESPONSE, body=b"")),
        replace(ITEM, response=replace(RESPONSE, file=BodyFile("", 3, "ab" * 32))),
        replace(ITEM, failure=Failure("cut", "")),
    ],
)
def test_what_was_asked_and_answered_does(other: Interaction) -> None:
    assert fingerprint(other) != fingerprint(ITEM)
