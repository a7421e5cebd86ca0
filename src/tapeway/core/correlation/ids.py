"""Finds the identifiers in an answer that an app may send back.

There is no list of providers' prefixes. An identifier is a whole string in a field such as `id` or
`call_id`, or a random-looking string. Text written by people or models never counts.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

from tapeway.core.http.headers import find_header
from tapeway.core.model.messages import Request, Response

LONGEST_ID = 16 * 1024
"""Signatures and encrypted reasoning reach this length; images are longer."""

MOST_BODY_READ = 8 * 1024 * 1024
"""More of one answer is not searched."""

# Without going back: no shorter piece is followed by a quote.
_TOKEN = rb"[!#-\[\]-~]{1,%d}+" % LONGEST_ID

# Every string is matched: a closing quote must not count as an opening one.
_STRING = re.compile(
    rb'"(?:([A-Za-z_][\w.$-]{0,63}+)"\s*+:\s*+")?'
    rb"(?:(" + _TOKEN + rb')"(?!\s*+:)|[^"\\]*+(?:\\.[^"\\]*+)*+"?)',
    re.DOTALL,
)
_AT_ONCE = 256 * 1024
_WHOLE_TOKEN = re.compile(_TOKEN.decode())
_ID_FIELD = re.compile(r"(?:.*[_-])?(?:id|ids|uuid)|.*[a-z](?:Id|Ids|ID|Uuid)")
# The end of such a field's name, with the quote, and the whitespace allowed behind the name.
_ID_FIELD_ENDS = (b'd"', b's"', b'D"')
_MOST_WHITESPACE = 64

_ALPHANUMERIC = re.compile(r"[0-9A-Za-z]+")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\b|[0-9]{4}-[0-9]{2}-[0-9]{2}T")
_LETTER_TO_DIGIT = re.compile(r"[A-Za-z](?=[0-9])|[0-9](?=[A-Za-z])")
_URL_SEPARATORS = re.compile(r"[/?&=#]")
_LINK_HEADERS = (b"location", b"content-location", b"operation-location", b"azure-asyncoperation")
_LINKS = frozenset(_LINK_HEADERS)

# Fields with content, or with a name the app chose: another value makes another request.
_CONTENT_FIELDS = frozenset(
    {
        *("arguments", "content", "description", "input", "instructions", "model", "modelId"),
        *("modelVersion", "model_id", "name", "object", "obfuscation", "output", "partial_json"),
        *("prompt", "query", "role", "status", "system", "text", "thinking", "title", "type"),
    }
)


def looks_random(text: str) -> bool:
    """Whether a text looks random, as `call_h5Xw0Vb1jZ` does and versions, dates and words do not."""
    if _DATE.match(text):
        return False
    for piece in _ALPHANUMERIC.findall(text):
        changes = len(_LETTER_TO_DIGIT.findall(piece))
        if changes >= 2 and len(piece) >= 5:
            return True
        if len(piece) >= (8 if changes else 10) and not piece.isalpha():
            return True
    return False


def is_token(text: str) -> bool:
    """Whether a text could be an identifier at all: without blanks and not too long."""
    return _WHOLE_TOKEN.fullmatch(text) is not None


def is_id_field(name: str) -> bool:
    """Whether a field of this name holds an identifier, as `id`, `call_id` and `responseId` do."""
    return name not in _CONTENT_FIELDS and _ID_FIELD.fullmatch(name) is not None


def is_under_id_name(quoted: bytes, body: bytes) -> bool:
    """Whether a string, given with its quotes, may be in a field such as `id`.

    A quick search in the bytes. May return True although `issued_ids` finds no identifier.
    """
    at = body.find(quoted)
    while at >= 0:
        before = body[max(0, at - _MOST_WHITESPACE) : at].rstrip(b": \t\r\n")
        if not before or before.endswith(_ID_FIELD_ENDS):
            return True
        at = body.find(quoted, at + 1)
    return False


def may_have_header_ids(response: Response) -> bool:
    """Whether a response has a header that may hold identifiers."""
    return not _LINKS.isdisjoint([name.lower() for name, _ in response.headers])


def issued_ids(response: Response) -> set[str]:
    """The identifiers that a response holds."""
    ids = _body_ids(response.body[:MOST_BODY_READ])
    for name in _LINK_HEADERS if may_have_header_ids(response) else ():
        if (link := find_header(response.headers, name)) is not None:
            ids.update(_url_ids(link.decode("latin-1")))
    return ids


def ids_by_field(response: Response) -> dict[str, list[str]]:
    """The identifiers of a response, each once, by the field's name, in order."""
    ids_by_name: dict[str, dict[str, None]] = {}
    for field, token in _strings(response.body[:MOST_BODY_READ]):
        if token:
            name = field.decode("ascii", "replace")
            for identifier in _ids_in(name, token.decode("ascii")):
                ids_by_name.setdefault(name, {})[identifier] = None
    for header in _LINK_HEADERS:
        if (link := find_header(response.headers, header)) is not None:
            ids = _url_ids(link.decode("latin-1"))
            ids_by_name.setdefault(header.decode(), {}).update(dict.fromkeys(ids))
    return {name: list(ids) for name, ids in ids_by_name.items()}


def may_hold(request: Request, text: str) -> bool:
    """Whether a text may be among the tokens of a request: False only where it is not."""
    return request.body.find(text.encode()) >= 0 or text in request.target


def request_tokens(request: Request) -> set[str]:
    """Every text without blanks that is a whole string or URL segment of a request."""
    tokens = [token.decode("ascii") for _, token in _strings(request.body) if token]
    return {*tokens, *_URL_SEPARATORS.split(request.target)}


def sent_ids(request: Request) -> set[str]:
    """The texts in a request that look like identifiers in their place."""
    return _body_ids(request.body).union(_target_ids(request.target))


def _body_ids(body: bytes) -> set[str]:
    identifiers: set[str] = set()
    # The events of a stream repeat most of theirs.
    for field, token in {*_strings(body)}:
        if token:
            identifiers.update(_ids_in(field.decode("ascii", "replace"), token.decode("ascii")))
    return identifiers


def _strings(body: bytes) -> Iterable[tuple[bytes, bytes]]:
    """The strings of a body with the fields; b"" for a string that is no identifier."""
    if len(body) <= _AT_ONCE:
        strings: list[tuple[bytes, bytes]] = _STRING.findall(body)
        return strings
    # One string at a time, to give turns to other threads.
    return ((string[1] or b"", string[2] or b"") for string in _STRING.finditer(body))


def _ids_in(field: str, text: str) -> list[str]:
    # First, because `files/abc` is Gemini's name for a file whose URL ends in `abc`.
    url_ids = _url_ids(text) if "/" in text else []
    if field not in _CONTENT_FIELDS and (_ID_FIELD.fullmatch(field) or looks_random(text)):
        url_ids.append(text)
    return url_ids


@lru_cache(maxsize=256)
def _target_ids(target: str) -> tuple[str, ...]:
    # Clients use few targets, mostly without identifiers.
    return tuple(_url_ids(target))


def _url_ids(url: str) -> list[str]:
    return [part for part in _URL_SEPARATORS.split(url) if looks_random(part)]
