"""Files of other tools that lie where cassettes do, and cassettes that begin alike."""

from io import BytesIO

import pytest

from tapeway.formats.cassette_file import YAML
from tapeway.formats.native.document import load
from tapeway.formats.registry import tool_of
from tests.cli.invocation import cassette_text
from tests.formats.other_tools.example_files import text

BY_HAND = b"""version: 1
interactions:
- request:
    url: http://h/
    method: GET
  kind: http
  response: {}
"""


def suffix_of(written: bytes) -> str:
    return ".json" if written.lstrip()[:1] == b"{" else ".yaml"


@pytest.mark.parametrize(
    "written",
    [
        text("vcr_requests.yaml"),
        text("vcr_httpx.json"),
        b"interactions:\n- request:\n    body: null\n    uri: http://h/\n",
        b"version: 1\ninteractions:\n  - request:\n      uri: http://h/\n",
        b"\xef\xbb\xbf---\n# by hand\ninteractions:\r\n- request:\r\n    uri: http://h/\r\n",
        b'{"version": 1, "interactions": [{"request": {"uri": "http://h/"}}]}',
        b'interactions:\n- request:\n    body: |\n      {"kind": 1}\n      kind: http\n    uri: x\n',
    ],
)
def test_a_file_of_vcr_is_recognised(written: bytes) -> None:
    assert tool_of(BytesIO(written), suffix_of(written)) == "VCR.py"


def test_the_form_of_langchain_is_recognised() -> None:
    written = b"requests:\n- body: null\n  uri: http://h/\nresponses:\n- body: null\n"

    assert tool_of(BytesIO(written), ".yaml") == "VCR.py"


@pytest.mark.parametrize(
    "written",
    [
        b"",
        cassette_text("hello"),
        YAML.save(load(cassette_text("hello"))),
        BY_HAND,
        b'{"version": 1, "interactions": [{"request": {"url": "u"}, "kind": "http"}]}',
        b"a: 1\ninteractions:\n- request:\n",
    ],
)
def test_a_cassette_and_any_other_file_belong_to_no_tool(written: bytes) -> None:
    assert tool_of(BytesIO(written), suffix_of(written)) is None
