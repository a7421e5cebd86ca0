"""What in an answer is an identifier that the app may send back.

There is no list of providers' prefixes: an identifier is a whole string that stands under a name
such as `id` or `call_id`, or that looks drawn by lot. What people or models say is none.
"""

import re

from tapeway.core.http.headers import find_header
from tapeway.core.model.messages import Request, Response

LONGEST_ID = 16 * 1024
"""Signatures and encrypted thoughts are that long; pictures are longer."""

MOST_BODY_READ = 8 * 1024 * 1024
"""More of one answer is not looked at."""

_TOKEN = rb"[!#-\[\]-~]{1,%d}" % LONGEST_ID
# Every string is taken in turn, so that no quote is the beginning of what lies between two of them.
_STRING = re.compile(
    rb'(?:"([A-Za-z_][\w.$-]{0,63})"\s*:\s*)?'
    rb'"(?:(' + _TOKEN + rb')"(?!\s*:)|[^"\\]*(?:\\.[^"\\]*)*"?)',
    re.DOTALL,
)
_WHOLE = re.compile(_TOKEN.decode())
_ID_NAME = re.compile(r"(?:.*[_-])?(?:id|ids|uuid)|.*[a-z](?:Id|Ids|ID|Uuid)")
_PIECES = re.compile(r"[0-9A-Za-z]+")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\b|[0-9]{4}-[0-9]{2}-[0-9]{2}T")
_TURNS = re.compile(r"[A-Za-z](?=[0-9])|[0-9](?=[A-Za-z])")
_SEGMENTS = re.compile(r"[/?&=#]")
_LINKS = (b"location", b"content-location", b"operation-location", b"azure-asyncoperation")
_LINK_NAMES = frozenset(_LINKS)
# How such a name ends, and how much whitespace may stand behind it.
_ID_ENDS = (b'd"', b's"', b'D"')
_GAP = 64

# What is said, and what names things the app chose: another value there is another request.
_SAID = frozenset(
    {
        *("arguments", "content", "description", "input", "instructions", "model", "modelId"),
        *("modelVersion", "model_id", "name", "object", "obfuscation", "output", "partial_json"),
        *("prompt", "query", "role", "status", "system", "text", "thinking", "title", "type"),
    }
)


def looks_random(text: str) -> bool:
    """Whether a text looks drawn by lot, as `call_h5Xw0Vb1jZ` and no version, date or word does."""
    if _DATE.match(text):
        return False
    for piece in _PIECES.findall(text):
        turns = len(_TURNS.findall(piece))
        if turns >= 2 and len(piece) >= 5:
            return True
        if len(piece) >= (8 if turns else 10) and not piece.isalpha():
            return True
    return False


def is_token(text: str) -> bool:
    """Whether a text could be an identifier at all: one with a blank or too long is none."""
    return _WHOLE.fullmatch(text) is not None


def is_under_id_name(quoted: bytes, body: bytes) -> bool:
    """Whether a string, given in its quotes, may stand under a name such as `id`: a quick look."""
    at = body.find(quoted)
    while at >= 0:
        before = body[max(0, at - _GAP) : at].rstrip(b": \t\r\n")
        if not before or before.endswith(_ID_ENDS):
            return True
        at = body.find(quoted, at + 1)
    return False


def may_have_header_ids(response: Response) -> bool:
    """Whether an answer's header may hold identifiers, too."""
    return not _LINK_NAMES.isdisjoint([name.lower() for name, _ in response.headers])


def issued_ids(response: Response) -> set[str]:
    """The identifiers that an answer holds."""
    found = _held(response.body[:MOST_BODY_READ])
    for name in _LINKS:
        if (link := find_header(response.headers, name)) is not None:
            found.update(_segments(link.decode("latin-1")))
    return found


def request_tokens(request: Request) -> set[str]:
    """Every text without blanks that a request holds as a whole string or segment."""
    tokens = [token.decode("ascii") for _, token in _STRING.findall(request.body) if token]
    return {*tokens, *_SEGMENTS.split(request.target)}


def sent_ids(request: Request) -> set[str]:
    """The same without what does not look like an identifier there."""
    return _held(request.body).union(_segments(request.target))


def _held(octets: bytes) -> set[str]:
    found: set[str] = set()
    for key, token in _STRING.findall(octets):
        if token:
            found.update(_identifiers(key.decode("ascii", "replace"), token.decode("ascii")))
    return found


def _identifiers(name: str, text: str) -> list[str]:
    if name in _SAID:
        # `files/abc` is Gemini's name for a file that is asked for by its last segment.
        return _segments(text) if "/" in text else []
    found = _segments(text) if "/" in text else []
    if _ID_NAME.fullmatch(name) or looks_random(text):
        found.append(text)
    return found


def _segments(link: str) -> list[str]:
    return [each for each in _SEGMENTS.split(link) if looks_random(each)]
