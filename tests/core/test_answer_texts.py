"""What answers said is found whole, and over the pieces of a stream."""

import pytest

from tapeway.core.misses.comparison import AnswerTexts
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseChunk, ResponseHead

STREAM = b"""event: piece
data: {"id":"resp_1","delta":{"content":"Two plus "}}

data: {"id":"resp_1","delta":{"content":"two is four."}}

data: [DONE]
"""


def answered(*bodies: bytes) -> AnswerTexts:
    return AnswerTexts(
        [
            Interaction(
                index, Request("", "GET", "/"), Response(ResponseHead(200), (ResponseChunk(body),))
            )
            for index, body in enumerate(bodies)
        ]
    )


@pytest.mark.parametrize(
    ("body", "text", "expected"),
    [
        (b'{"a":[{"id":"x"}]}', "x", True),
        (b'{"a":[{"id":"xy"}]}', "x", False),
        (b'{"a":"a longer text"}', "longer text", True),
        (b'{"longer text":1}', "longer text", False),
        (STREAM, "Two plus two is four.", True),
        (STREAM, "resp_1", True),
        (STREAM, "two is five.", False),
        (b'{"content":"one piece"}\n{"content":" and another"}\n', "one piece and another", True),
        (b"\xff\x00", "x", False),
        (b"", "", False),
    ],
)
def test_a_text_is_found_where_it_was_said(body: bytes, text: str, expected: bool) -> None:
    assert answered(body).said(text, before=1) is expected


def test_only_what_was_said_before_is_found() -> None:
    texts = answered(b'"one"', b'"two"')

    assert texts.said("one", before=1)
    assert not texts.said("two", before=1)
    assert texts.said("two", before=2)
