"""Lines of JSON under all the names that services give them."""

import json
from typing import Any

import pytest

from tapeway.core.model.messages import Request, Response, ResponseHead
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.redactor import Redactor
from tapeway.core.streams.documents import documents
from tapeway.core.streams.framings import FRAMINGS, LINES
from tapeway.formats.fields import Fields
from tapeway.formats.native import chunk_times
from tapeway.providers.api_call import describe_call
from tapeway.providers.stream_end import end_detector
from tapeway.providers.usage import token_usage

TYPES = sorted(media.decode() for media, framing in FRAMINGS.items() if framing is LINES)


def body(media: str, *values: dict[str, Any]) -> bytes:
    mark = b"\x1e" if media == "application/json-seq" else b""
    return b"".join([mark + json.dumps(value).encode() + b"\n" for value in values])


@pytest.mark.parametrize("media", TYPES)
def test_their_end_their_tokens_and_their_documents_are_found(media: str) -> None:
    head = ResponseHead(200, headers=((b"Content-Type", f"{media}; charset=utf-8".encode()),))
    asked = Request("ollama", "POST", "/api/chat", (), b'{"model":"m"}')
    call = describe_call("ollama", asked)
    assert call is not None
    last = {"done": True, "prompt_eval_count": 3, "eval_count": 4}
    content = body(media, {"done": False, "message": {"content": "Hi"}}, last)
    response = Response(head, content)

    ending = end_detector(call, head)
    ending.feed(content)
    tokens = token_usage(call, response)

    assert ending.finish() == "marked"
    assert tokens is not None
    assert (tokens.prompt_tokens, tokens.completion_tokens) == (3, 4)
    assert [json.loads(document) for document in documents(response) if document][-1] == last


@pytest.mark.parametrize("media", TYPES)
def test_an_edited_body_is_divided_into_lines(media: str) -> None:
    content = body(media, {"a": 1}, {"b": 2})
    fields = Fields({"framing": "chunked", "chunks": [[1.0, 3]]}, ())

    _, found = chunk_times.decode(fields, content, media)

    assert found.divide(content) == content.splitlines(keepends=True)


@pytest.mark.parametrize("media", TYPES)
def test_a_secret_that_is_split_over_lines_is_found(media: str) -> None:
    content = body(media, {"text": "the Zk3vQ9x"}, {"text": "T2mB7pL5c!"})
    redactor = Redactor("run", [Secret("x", b"Zk3vQ9xT2mB7pL5c")])
    head = ResponseHead(200, headers=((b"Content-Type", media.encode()),))
    stored = redactor.response(Response(head, content)).body

    hidden = redactor.placeholder("x", b"Zk3vQ9xT2mB7pL5c")
    assert stored == content.replace(b"Zk3vQ9x", hidden).replace(b"T2mB7pL5c", b"")
