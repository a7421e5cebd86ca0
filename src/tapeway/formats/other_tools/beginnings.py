"""Files of other tools that lie where cassettes do, recognised by how they begin."""

import re
from typing import BinaryIO

_LOOKED_AT = 4096
_START = rb"(?:\xef\xbb\xbf)?(?:(?:#[^\n]*|---|version: 1)?\r?\n|version: 1\r?\n)*"
_VCR_YAML = re.compile(_START + rb"interactions:[ \t\r\n]*?(?P<indent>[ ]*-[ ]+)request:")
_VCR_JSON = re.compile(
    rb'(?:\xef\xbb\xbf)?\s*\{\s*(?:"version"\s*:\s*1\s*,\s*)?'
    rb'"interactions"\s*:\s*\[\s*\{\s*"request"\s*:\s*\{'
)
_LANGCHAIN = re.compile(_START + rb"requests:[ \t\r\n]*-[ ]")


def tool_of(file: BinaryIO) -> str | None:
    """The tool that wrote a file; None for a cassette of tapeway's own, and for all others.

    Only a file that begins like one of another tool is read further.
    """
    beginning = file.read(_LOOKED_AT)
    if _LANGCHAIN.match(beginning):
        return "LangChain"
    if found := _VCR_YAML.match(beginning):
        return "VCR.py" if _is_vcr_yaml(len(found["indent"]), beginning + file.read()) else None
    if _VCR_JSON.match(beginning):
        return "VCR.py" if _is_vcr_json(beginning + file.read()) else None
    return None


# A cassette that somebody wrote by hand may have its fields in the same order: it has a kind and a
# url, where VCR.py has a uri.


def _is_vcr_yaml(indent: int, text: bytes) -> bool:
    return not re.search(rb"^ {%d}kind:" % indent, text, re.MULTILINE)


def _is_vcr_json(text: bytes) -> bool:
    return b'"uri"' in text and not re.search(rb'"kind"\s*:\s*"http"', text)
