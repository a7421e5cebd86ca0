"""Any value anywhere in a cassette is kept by loading and saving, or named in a fault."""

import json
from copy import deepcopy
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.messages import Response, ResponseHead
from tapeway.formats.errors import FormatFault
from tapeway.formats.native.document import load, save
from tests.support.exchanges import interaction
from tests.support.thoroughness import examples

CHUNKED = interaction(
    chunks=((b"data: 1\n\n", 1.0), (b"data: \xff\n\n", 2.0)),
    framing="chunked",
    response_headers=((b"Content-Type", b"text/event-stream"), (b"A", b"\xe9"), (b"a", b"1")),
    request_body=b'{"a":1e5}',
    base="http://h:1/base",
)
SEED: Any = json.loads(
    save(StoredCassette(CassetteHead("", "r", {"a": 1}), (interaction(), CHUNKED)))
)


def _places(value: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    found: list[tuple[Any, ...]] = []
    for step, inner in inside:
        found.append((*above, step))
        if isinstance(inner, dict | list):
            found += _places(inner, (*above, step))
    return found


PLACES = _places(SEED)
FIELDS = sorted({step for place in PLACES for step in place if isinstance(step, str)})
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6)
    | st.sampled_from(["http", "llm", "chunked", "close", "latin1", "/", "1", "GET", "e30="]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=examples(200))
@given(place=st.sampled_from(PLACES), value=VALUES, remove=st.booleans())
@example(place=("interactions", 1, "response", "framing"), value="close", remove=False)
def test_any_value_anywhere_is_kept_or_named_in_a_fault(
    place: tuple[Any, ...], value: Any, remove: bool
) -> None:
    document = deepcopy(SEED)
    parent = document
    for step in place[:-1]:
        parent = parent[step]
    if remove:
        del parent[place[-1]]
    else:
        parent[place[-1]] = value

    try:
        cassette = load(json.dumps(document).encode())
    except FormatFault:
        return

    once = load(save(cassette))
    assert load(save(once)) == once
    assert [_said(item) for item in once.interactions] == [
        _said(item) for item in cassette.interactions
    ]


def _said(found: Any) -> Any:
    """What must survive; a piece without octets is nothing on the wire and need not."""
    if not hasattr(found, "request"):
        return {name: value for name, value in found.document.items() if name != "index"}
    response: Response = found.response
    head: ResponseHead = response.head
    return found.request, head, response.pieces(), found.tags
