"""How near two requests of one key are by their headers.

It decides only which of several equal recordings comes first: a step of a digest login, or the one
of two users whose cookie it is.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import CredentialHeaders, Headers, Request
from tapeway.core.redaction.credentials import is_credential_header
from tapeway.core.redaction.spans import PLACEHOLDER

# What may stand in clear before an Authorization's value: how it was made, not what it is.
_SCHEMES = frozenset(
    {
        *(b"aws4-hmac-sha256", b"basic", b"bearer", b"bot", b"digest", b"dpop", b"hawk", b"hmac"),
        *(b"negotiate", b"ntlm", b"oauth", b"token"),
    }
)


@dataclass(frozen=True, slots=True)
class _Face:
    """What is compared, as sets: one difference is one thing that stands on one side alone."""

    credentials: frozenset[tuple[str, ...]]
    headers: frozenset[tuple[bytes, bytes]]


@lru_cache(maxsize=512)
def credentials_of(
    headers: Headers, placeholder: Callable[[str, bytes], bytes]
) -> CredentialHeaders:
    """What a cassette may keep of a request's credentials: where they stood, and placeholders.

    Two requests with one credential have one trace. A placeholder that came back with a replayed
    cookie stays as it is, so it is the one recorded.
    """
    found: dict[str, list[str]] = {}
    for name, value in headers:
        lower = name.lower()
        if lower == b"cookie":
            kept = "; ".join([_cookie(pair, placeholder) for pair in value.split(b";")])
        elif is_credential_header(lower):
            kept = _field(lower.decode("latin-1"), value.strip(), placeholder)
        else:
            continue
        found.setdefault(lower.decode("latin-1"), []).append(kept)
    return tuple([(name, "; ".join(values)) for name, values in sorted(found.items())])


def vary(recordings: Sequence[Interaction]) -> bool:
    """Whether the headers of these recordings could make a difference."""
    first = recordings[0].request
    return any(
        each.request.headers != first.headers or each.request.credentials != first.credentials
        for each in recordings
    )


def of_same_caller(asked: Request, recordings: Sequence[Interaction]) -> Sequence[Interaction]:
    """Those made with this very credential, or all where there is none: nobody else's will do."""
    own = _face(asked).credentials
    return [each for each in recordings if _face(each.request).credentials == own] or recordings


def nearest(asked: Request, recordings: Iterable[Interaction]) -> list[Interaction]:
    """The recordings whose headers are nearest, in their order; all that are equally near."""
    face = _face(asked)
    found: list[Interaction] = []
    least: tuple[int, int] | None = None
    for each in recordings:
        distance = _distance(face, _face(each.request))
        if least is None or distance < least:
            found, least = [each], distance
        elif distance == least:
            found.append(each)
    return found


def _distance(left: _Face, right: _Face) -> tuple[int, int]:
    return len(left.credentials ^ right.credentials), len(left.headers ^ right.headers)


@lru_cache(maxsize=4096)
def _face_of(credentials: CredentialHeaders, headers: Headers) -> _Face:
    parts: set[tuple[str, ...]] = set()
    for name, text in credentials:
        # A nonce makes each value another one: that there is one, and its scheme, say more.
        parts |= {(name, "present", str(weight)) for weight in range(3)}
        if name == "cookie":
            parts |= {(name, pair.partition("=")[0], _mark(pair)) for pair in text.split("; ")}
        else:
            parts |= {(name, "scheme", text.rpartition(" ")[0]), (name, "value", _mark(text))}
    kept = frozenset([(name.lower(), value) for name, value in headers])
    return _Face(frozenset(parts), kept)


def _face(request: Request) -> _Face:
    return _face_of(request.credentials, request.headers)


def _cookie(pair: bytes, placeholder: Callable[[str, bytes], bytes]) -> str:
    name, equals, content = pair.strip().partition(b"=")
    if not equals:
        name, content = b"", name
    label = name.strip().decode("latin-1")
    kept = _kept(label or "cookie", content.strip(b' "'), placeholder)
    return f"{_legible(name)}={kept}" if equals else kept


def _field(name: str, value: bytes, placeholder: Callable[[str, bytes], bytes]) -> str:
    scheme, space, rest = value.partition(b" ")
    if space and scheme.lower() in _SCHEMES:
        return f"{scheme.decode()} {_kept(name, rest.strip(), placeholder)}"
    return _kept(name, value, placeholder)


def _kept(label: str, value: bytes, placeholder: Callable[[str, bytes], bytes]) -> str:
    if not value or PLACEHOLDER.fullmatch(value):
        return value.decode("ascii")
    return placeholder(label, value).decode("ascii")


def _mark(text: str) -> str:
    # What stands before it says where a value was seen: in an answer, it was under another name.
    return text.rpartition(".")[2]


def _legible(name: bytes) -> str:
    return "".join([chr(octet) if 32 < octet < 127 else "?" for octet in name.strip()])
