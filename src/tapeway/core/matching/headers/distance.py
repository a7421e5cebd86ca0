"""How similar two requests with the same key are in their headers and credentials.

This decides only which of several equal recordings comes first, such as the next step of a digest
login, or the recording of the user whose cookie a request carries.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import CredentialHeaders, Headers, Request
from tapeway.core.model.request_fields import RequestFields
from tapeway.core.redaction.credentials import is_credential_header, telling_fields
from tapeway.core.redaction.spans import PLACEHOLDER

# Authentication schemes, which are stored; the value after them is redacted.
_SCHEMES = frozenset(
    {
        *(b"aws4-hmac-sha256", b"basic", b"bearer", b"bot", b"digest", b"dpop", b"hawk", b"hmac"),
        *(b"negotiate", b"ntlm", b"oauth", b"token"),
    }
)


def stored_credentials(
    fields: RequestFields, placeholder: Callable[[str, bytes], bytes]
) -> CredentialHeaders:
    """A request's credential headers as a cassette stores them: names, schemes and placeholders.

    Equal credentials have equal placeholders. A cookie set by a replay comes back as a placeholder,
    which is kept.
    """
    texts_by_name: dict[str, list[str]] = {}
    for name, value in telling_fields(fields):
        if name == b"cookie":
            text = "; ".join([_cookie(pair, placeholder) for pair in value.split(b";")])
        elif is_credential_header(name):
            text = _field(name.decode("latin-1"), value.strip(), placeholder)
        else:
            continue
        texts_by_name.setdefault(name.decode("latin-1"), []).append(text)
    return tuple([(name, "; ".join(values)) for name, values in sorted(texts_by_name.items())])


def request_credentials(
    request: Request, placeholder: Callable[[str, bytes], bytes]
) -> CredentialHeaders:
    """What a cassette stores to tell the callers of a request apart.

    Besides the credential headers, this is the login of the client's connection.
    """
    stored = stored_credentials(request.fields, placeholder)
    if request.login is None or not request.login.id:
        return stored
    text = placeholder(_LOGIN, request.login.id.encode()).decode("ascii")
    return tuple(sorted((*stored, (_LOGIN, text))))


_LOGIN = "connection"
"""Stands among the credential headers for the login of a connection."""

# Schemes with a new value in each request: the value does not identify the caller.
_SIGNING_SCHEMES = frozenset(
    {"aws4-hmac-sha256", "digest", "dpop", "hawk", "hmac", "negotiate", "ntlm", "oauth"}
)
_SESSION_HEADERS = frozenset({"mcp-session-id"})
"""Fields with an identifier of a session: a client gets a new one with each session."""

# Cookies of load balancers, of protection against bots, and of statistics: they come and go.
_INFRASTRUCTURE_COOKIE = re.compile(r"__cf|_cfuvid|cf_|AWSALB|_ga|_gid|_gat|__utm", re.IGNORECASE)


@lru_cache(maxsize=1024)
def caller(credentials: CredentialHeaders) -> bytes:
    """A text that tells the caller of a request from others, b"" for one without a credential.

    Signatures and cookies that infrastructure sets are left out. On a connection that has logged in
    the login alone counts.
    """
    lines: list[str] = []
    for name, text in credentials:
        if name == _LOGIN:
            return f"{name}: {_placeholder_digest(text)}".encode()
        if name == "cookie":
            pairs = [pair for pair in text.split("; ") if not _INFRASTRUCTURE_COOKIE.match(pair)]
            lines += sorted(
                f"{pair.partition('=')[0]}={_placeholder_digest(pair)}" for pair in pairs
            )
        elif name not in _SESSION_HEADERS:
            scheme = text.partition(" ")[0].lower()
            signs = scheme in _SIGNING_SCHEMES
            lines.append(f"{name}: {scheme if signs else _placeholder_digest(text)}")
    return "\n".join(lines).encode()


def headers_differ(recordings: Sequence[Interaction]) -> bool:
    """Whether these recordings differ in headers or credentials."""
    first = recordings[0].request
    return any(
        recording.request.headers != first.headers
        or recording.request.credentials != first.credentials
        for recording in recordings
    )


def of_same_caller(asked: Request, recordings: Sequence[Interaction]) -> Sequence[Interaction]:
    """The recordings made with the same credentials, or all of them if there are none."""
    own = _features(asked).credentials
    return [
        recording for recording in recordings if _features(recording.request).credentials == own
    ] or recordings


def nearest_by_headers(asked: Request, recordings: Iterable[Interaction]) -> list[Interaction]:
    """The recordings with the nearest headers, in order; all that are equally near."""
    features = _features(asked)
    nearest: list[Interaction] = []
    least: tuple[int, int] | None = None
    for recording in recordings:
        distance = _distance(features, _features(recording.request))
        if least is None or distance < least:
            nearest, least = [recording], distance
        elif distance == least:
            nearest.append(recording)
    return nearest


@dataclass(frozen=True, slots=True)
class _Features:
    """What is compared, as sets: the distance is the number of features only one request has."""

    credentials: frozenset[tuple[str, ...]]
    headers: frozenset[tuple[bytes, bytes]]


def _distance(left: _Features, right: _Features) -> tuple[int, int]:
    return len(left.credentials ^ right.credentials), len(left.headers ^ right.headers)


@lru_cache(maxsize=4096)
def _features_of(credentials: CredentialHeaders, headers: Headers) -> _Features:
    parts: set[tuple[str, ...]] = set()
    for name, text in credentials:
        # A nonce makes every value different, so the presence of a header and its scheme weigh
        # more.
        parts |= {(name, "present", str(weight)) for weight in range(3)}
        if name == "cookie":
            parts |= {
                (name, pair.partition("=")[0], _placeholder_digest(pair))
                for pair in text.split("; ")
            }
        else:
            parts |= {
                (name, "scheme", text.rpartition(" ")[0]),
                (name, "value", _placeholder_digest(text)),
            }
    fields = frozenset([(name.lower(), value) for name, value in headers])
    return _Features(frozenset(parts), fields)


def _features(request: Request) -> _Features:
    return _features_of(request.credentials, request.headers)


def _cookie(pair: bytes, placeholder: Callable[[str, bytes], bytes]) -> str:
    name, equals, content = pair.strip().partition(b"=")
    if not equals:
        name, content = b"", name
    label = name.strip().decode("latin-1")
    text = _redacted(label or "cookie", content.strip(b' "'), placeholder)
    return f"{_printable(name)}={text}" if equals else text


def _field(name: str, value: bytes, placeholder: Callable[[str, bytes], bytes]) -> str:
    scheme, space, rest = value.partition(b" ")
    if space and scheme.lower() in _SCHEMES:
        return f"{scheme.decode()} {_redacted(name, rest.strip(), placeholder)}"
    return _redacted(name, value, placeholder)


def _redacted(label: str, value: bytes, placeholder: Callable[[str, bytes], bytes]) -> str:
    if not value or PLACEHOLDER.fullmatch(value):
        return value.decode("ascii")
    return placeholder(label, value).decode("ascii")


def _placeholder_digest(text: str) -> str:
    # The label is the field's name, and an answer may hold the value under a different name.
    return text.rpartition(".")[2].strip("-")


def _printable(name: bytes) -> str:
    return "".join([chr(octet) if 32 < octet < 127 else "?" for octet in name.strip()])
