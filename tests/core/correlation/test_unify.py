"""The quick search for references finds all that a reading of the document finds."""

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.correlation.unify import body_texts, may_have_references
from tapeway.core.json_text import Json
from tapeway.core.matching.document import request_document
from tapeway.core.matching.rules import NO_RULES
from tapeway.core.model.messages import Request

NAMES = ["id", "call_id", "tool_call_id", "signature", "messages", "input", "content", "x"]
BODIES = st.recursive(
    st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(BODIES, st.sampled_from([b"application/json", b"text/plain", b""]), st.booleans())
def test_no_reference_is_overlooked_by_the_quick_search(
    body: Json, content_type: bytes, escaped: bool
) -> None:
    octets = json.dumps(body).encode()
    if escaped:
        octets = octets.replace(b'"id"', b'"\\u0069d"').replace(b'"call_id"', b'"call\\u005fid"')
    request = Request("r", "POST", "/", ((b"Content-Type", content_type),), octets)

    if any(text.is_reference for text in body_texts(request_document(request, NO_RULES))):
        assert may_have_references(request)


def test_a_request_without_names_of_references_is_not_searched() -> None:
    json_type = ((b"Content-Type", b"application/json"),)
    plain = Request("r", "POST", "/", json_type, b'{"messages": [{"content": "tool_call_id"}]}')
    naming = replace(plain, body=b'{"messages": [{"tool_call_id": "a"}]}')
    coded = replace(plain, headers=(*json_type, (b"Content-Encoding", b"gzip")))

    found = [may_have_references(request) for request in (plain, naming, coded)]
    assert found == [False, True, True]
