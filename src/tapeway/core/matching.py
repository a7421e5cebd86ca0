"""The match key: two requests are equal when their keys are.

Route, method, decoded path, query pairs and a canonical body go in; headers do not, unless a rule
names them. What each of those is, `core/subject.py` says; here it becomes a short name.
"""

import hashlib
from collections.abc import Iterable

from tapeway.core import aliases, fields, subject
from tapeway.core.json_text import canonical
from tapeway.core.model import Interaction, Request
from tapeway.core.rules import NONE, Rules


def request_key(request: Request, rules: Rules = NONE) -> bytes:
    """The match key of an already redacted request: `route NUL digest`."""
    if rules:
        said = canonical(subject.document(request, rules))
        return request.route.encode() + b"\0" + hashlib.sha256(said).digest()
    path, _, query = request.target.partition("?")
    tag, body = _body(request)
    method, where = request.method.encode(), subject.path(path).encode()
    asked = canonical(subject.query(query)) if query else b"{}"
    # Lengths keep two different divisions of the same bytes apart.
    frame = b"%d:%b%d:%b%d:%b%b:" % (len(method), method, len(where), where, len(asked), asked, tag)
    return request.route.encode() + b"\0" + hashlib.sha256(frame + body).digest()


def credential_mark(request: Request) -> bytes:
    """What tells requests of one key apart by the credentials they carried, empty without any.

    It tells a paging token from an API key: of the first a cassette holds several, and each
    answers for itself; of the second it holds one, and that answers for any other.
    """
    target = request.target.encode("utf-8", "surrogateescape")
    if b"REDACTED." not in target and b"REDACTED." not in request.body:
        return b""
    found = subject.CREDENTIAL.findall(target) + subject.CREDENTIAL.findall(request.body)
    return b" ".join(sorted(found))


def recording_key(interaction: Interaction, rules: Rules = NONE) -> bytes:
    """The match key of a recording: that of its request, unless it answers in order whatever is asked."""
    if not aliases.is_ordered(interaction):
        return request_key(interaction.request, rules)
    (name,) = aliases.of_interaction(interaction, rules)
    return interaction.request.route.encode() + b"\0" + name


def found_under(interaction: Interaction, rules: Rules = NONE) -> tuple[bytes, ...]:
    """What a store's index has an interaction under: the digest of its match key, on any route.

    Routes are given to recordings when they are loaded, by their origin; an index knows none. Behind
    it come the names that `asked_under` gives a request, for recordings that AgentTape made.
    """
    own = digest_of(recording_key(interaction, rules))
    return tuple(dict.fromkeys((own, *aliases.of_interaction(interaction, rules))))


def asked_under(
    request: Request, redacted: Request, origins: Iterable[str], rules: Rules = NONE
) -> tuple[bytes, ...]:
    """What else to look for where nothing is found under a request's own key, the most exact first.

    Only a cassette with recordings of AgentTape's has something there. `request` is as it came, with
    its credentials; `origins` are those that such recordings of its route were made at, none where
    `aliases.are_known` says no. The names tell nothing of it, and are kept nowhere.
    """
    return aliases.of_request(request, redacted, origins, rules)


def digest_of(key: bytes) -> bytes:
    """A match key without its route."""
    return key[key.index(b"\0") + 1 :]


def on_route(key: bytes, route: str) -> bytes:
    """The key the same request would have on another route."""
    return route.encode() + key[key.index(b"\0") :]


def key_text(key: bytes) -> str:
    """A match key as it is shown to people."""
    return "v1:" + digest_of(key).hex()


def _body(request: Request) -> tuple[bytes, bytes]:
    """The kind of a body and its canonical form; a JSON one is not taken apart any further."""
    header = fields.read(request.headers)
    if (
        request.body
        and request.file is None
        and subject.may_be_json(header.content_type, request.body)
    ):
        plain, readable = subject.readable_body(header, request.body)
        read = subject.read_json(plain) if readable else None
        if read is not None:
            return b"json", read[1]
    content, value = subject.body(request)
    return content.encode(), canonical(value)
