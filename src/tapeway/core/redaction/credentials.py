"""Credentials in requests, responses and the environment: their places and values."""

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from tapeway.core.model.messages import Headers, Request
from tapeway.core.model.request_fields import RequestFields
from tapeway.core.redaction.opaque import MIN_VALUE as MIN_VALUE
from tapeway.core.redaction.opaque import is_opaque
from tapeway.core.redaction.secret_names import (
    HEADER_ENDS,
    OPAQUE_SCHEMES,
    QUERY_NAMES,
    VARIABLE,
    is_ambiguous,
    is_key,
    name_kind,
)

MAX_VALUE = 8 * 1024
"""Longer values are documents, not credentials."""

MIN_COOKIE = 16
"""Shorter cookie values are settings, not sessions."""

_OAUTH_QUERY = {
    "code": re.compile(r"(?:\A|[?&#])(?:grant_type=authorization_code(?:[&#]|\Z)|code_verifier=)"),
    "token": re.compile(r"(?:\A|[?&#])token_type_hint="),
}
"""What stands beside a `code` or `token` of OAuth (RFC 6749, 4.1.3; RFC 7636; RFC 7009)."""

_GOOGLE_ROUTES = frozenset({"gemini", "vertex"})
_GOOGLE_KEY, _NONE = frozenset({"key"}), frozenset[str]()

URL_HEADERS = frozenset(
    {
        b"azure-asyncoperation",
        b"content-location",
        b"location",
        b"operation-location",
        b"refresh",
        b"x-goog-upload-url",
    }
)
"""Response fields with a URL for the next request: only URL parameters are redacted."""

LINK_URL = re.compile(rb"(?<=<)[^<>]*(?=>)")
"""A URL in a Link field."""

_IDENTITY_HEADERS = frozenset(
    {
        b"chatgpt-account-id",
        b"openai-organization",
        b"openai-project",
        b"anthropic-organization-id",
        b"x-goog-user-project",
    }
)
"""They tell callers apart. What they hold is not looked for: it also stands in paths and bodies."""
ID_AND_SECRET = re.compile(rb"\w{1,100}?_secret_([\w./+%-]{8,1024})")
"""Stripe's client secret. Clients send the leading id separately, so the id stays.

Example: `pi_3MtwBwLkdIwHu7ix28a3tqPa_secret_YrKJUKribcBjcG8HVhfZluoGH`.
"""

SET_COOKIE = (b"set-cookie", b"set-cookie2")

HARMLESS_HEADERS = frozenset(
    {
        *(b"accept", b"accept-encoding", b"accept-language", b"connection", b"content-length"),
        *(b"content-type", b"host", b"traceparent", b"user-agent", b"x-stainless-arch"),
        *(b"x-stainless-async", b"x-stainless-lang", b"x-stainless-os", b"x-stainless-runtime"),
        *(b"x-stainless-package-version", b"x-stainless-read-timeout"),
        *(b"x-stainless-retry-count", b"x-stainless-runtime-version", b"x-stainless-timeout"),
    }
)
"""Fields that clients send with nearly every request, none of which holds a credential."""


_PARAMETER_KINDS = ("credential", "password", "login")
# A pair ends at a semicolon or at the query of another URL if another pair follows.
_PARAMETER = re.compile(r"(?<=[?&#;])([^?=&#;]*)=([^?&#;]+(?:[?;][^?=&#;]*(?=[?&#;]|\Z))*)")
_ENCODED = r"%(?:25){0,3}"
_ENCODED_PARAMETER = re.compile(
    rf"{_ENCODED}(?:3F|26|23|3B)([A-Za-z0-9_.-]{{1,64}}){_ENCODED}3D"
    rf"((?:(?!{_ENCODED}(?:26|23|3B))[^&#])+)",
    re.IGNORECASE,
)
_MOST_ENCODED = 4
_SCHEME_AND_VALUE = 2
_CREDENTIAL_HEADERS = _IDENTITY_HEADERS | frozenset(
    {
        b"authentication-info",
        b"dd-application-key",
        b"mcp-session-id",
        b"ocp-apim-subscription-key",
        b"proxy-authentication-info",
        b"x-key",
    }
)
_CREDENTIAL_HEADER = re.compile(rf"(?:^|[-_])(?:{HEADER_ENDS})$".encode())

_TELLING_HEADER = re.compile(rb"key|token|secret|auth|passw|credential|jwt|x-portkey-config")
_TELLING_NOTHING = re.compile(rb"idempotenc|cache|surrogate|websocket|partition|routing")
SUBPROTOCOLS = b"sec-websocket-protocol"
_TELLING_IN_PARTS = (b"cookie", b"referer", SUBPROTOCOLS)
"""Request fields of which only a part is a credential."""
_SUBPROTOCOL_KEY = re.compile(
    r"(?:.*[.-])?(?:api-?key|token|bearer|auth|authorization(?:\.k8s\.io)?)\.(.+)", re.IGNORECASE
)
"""OpenAI's `openai-insecure-api-key.KEY`, `base64url.bearer.authorization.k8s.io.TOKEN` and alike."""
_SCHEME_SUBPROTOCOLS = frozenset({"access_token", "apikey", "api-key", "bearer", "token"})
"""Deepgram's `token, KEY` and alike."""
_PIECE = re.compile(rb"""[^\s,;"'{}]+""")
_SEVERAL = re.compile(rb'[",;{]')
_ASSIGNED = re.compile(rb"[\w-]{1,40}[=:](?=[^=])")

_TEXT_IN_BASE64 = re.compile(rb"[A-Za-z0-9+/]{16,}={0,2}")

# Of connection strings: Azure's and those of databases.
_CONNECTION_PASSWORD = re.compile(
    r"(?:^|;)\s*(?:AccountKey|SharedAccessKey|Password|Pwd)\s*=\s*([^;]+)", re.IGNORECASE
)
_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#\s]*)@")


class Secret(NamedTuple):
    """A value that must not be stored, and the name of the place it was seen in.

    A named tuple, since it is hashed several times for every recording.
    """

    label: str
    value: bytes

    def __repr__(self) -> str:
        return f"Secret(label={self.label!r})"


@lru_cache(maxsize=1024)
def is_credential_header(name: bytes) -> bool:
    """Whether a field of this name (lower case) carries a credential, or says who the caller is."""
    return name in _CREDENTIAL_HEADERS or _CREDENTIAL_HEADER.search(name) is not None


@lru_cache(maxsize=1024)
def is_special_header(name: bytes) -> bool:
    """Whether a response's field of this name may hold a credential although the text shows nothing."""
    lower = name.lower()
    return (
        lower in SET_COOKIE
        or lower in URL_HEADERS
        or lower == b"link"
        or is_credential_header(lower)
    )


@lru_cache(maxsize=1024)
def has_special_header(names: tuple[bytes, ...]) -> bool:
    """Whether one of these fields may; most answers of a service have the same names."""
    return any(map(is_special_header, names))


def holds_secret(name: bytes) -> bool:
    """Whether the opaque values in a field of this name (lower case) are secrets wherever they stand."""
    if name in _IDENTITY_HEADERS or _TELLING_NOTHING.search(name) is not None:
        return False
    return is_credential_header(name) or _TELLING_HEADER.search(name) is not None


def names_credential(name: str) -> bool:
    """Whether a parameter or form field of this name (decoded) carries a credential by its name."""
    return name.lower() in QUERY_NAMES or name_kind(name) in _PARAMETER_KINDS


def is_credential_parameter(
    name: str,
    value: bytes,
    query: str,
    own: frozenset[str],
    has_form: Callable[[bytes], bool] = is_key,
) -> bool:
    """Whether a parameter or form field, name and value decoded, carries a credential.

    `query` is what it stands in, and `own` are the names of the provider's keys. A name that also
    means other things needs a value with the form of a key, unless what stands beside it tells.
    """
    if not is_ambiguous(name):
        return names_credential(name)
    return name in own or has_form(value) or is_oauth(name, query)


def is_oauth(name: str, query: str) -> bool:
    """Whether `code` or `token` in this query or form is that of OAuth."""
    beside = _OAUTH_QUERY.get(name)
    return beside is not None and beside.search(query) is not None


def own_parameters(request: Request) -> frozenset[str]:
    """The ambiguous names that hold the key of the request's provider."""
    is_google = request.route in _GOOGLE_ROUTES or ".googleapis.com" in request.base
    return _GOOGLE_KEY if is_google else _NONE


def credential_parameters(
    url: str, own: frozenset[str] = frozenset(), *, in_response: bool = False
) -> Iterator[tuple[str, int, int, bytes]]:
    """Each credential among the parameters of a URL or target: name, start, end, decoded value.

    Also those of a URL that is the value of a parameter itself. `own` are the names of the keys of
    the provider that the target belongs to. In a response whatever is opaque has the form of a key.
    """
    has_form = is_opaque if in_response else is_key
    for pair in _PARAMETER.finditer(url):
        name, value = unquote(pair[1]), pair[2]
        octets = _octets(value, once=True)
        if is_credential_parameter(name, octets, url, own, has_form):
            yield name, *_secret_part(url, pair.span(2), octets)
        elif "%" in value:
            for inner in _ENCODED_PARAMETER.finditer(url, *pair.span(2)):
                octets = _octets(inner[2], once=False)
                if is_credential_parameter(inner[1], octets, unquote(value), _NONE, has_form):
                    yield inner[1], *_secret_part(url, inner.span(2), octets)


def _secret_part(url: str, place: tuple[int, int], value: bytes) -> tuple[int, int, bytes]:
    tail = ID_AND_SECRET.fullmatch(value)
    if tail is None:
        return *place, value
    mark = "_secret_"
    return url.index(mark, *place) + len(mark), place[1], tail[1]


def _octets(value: str, *, once: bool) -> bytes:
    octets = unquote_to_bytes(value.encode("utf-8", "surrogateescape"))
    for _ in range(0 if once else _MOST_ENCODED):
        octets = unquote_to_bytes(octets)
    return octets


def header_credentials(fields: RequestFields) -> tuple[Secret, ...]:
    """The credentials in a request's fields, long enough to be searched for anywhere else.

    Those in the URL that `Referer` repeats are among `url_credentials`.
    """
    secrets: list[Secret] = []
    for name, value in telling_fields(fields):
        secrets += _field_credentials(name, value)
    return tuple(secrets)


def telling_fields(fields: RequestFields) -> list[tuple[bytes, bytes]]:
    """The fields of a request that may hold a credential or tell callers apart, names in lower case."""
    first, headers = fields.first, fields.headers
    telling = _telling_of(tuple(first))
    if len(first) == len(headers):
        return [(name, first[name]) for name in telling]
    # A field that stands there twice.
    return [(name.lower(), value) for name, value in headers if name.lower() in telling]


@lru_cache(maxsize=256)
def _telling_of(names: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Those that may; remembered together, since a client sends the same fields each time."""
    return tuple(filter(is_telling, names))


@lru_cache(maxsize=1024)
def is_telling(name: bytes) -> bool:
    """Whether a field may hold a credential or tell callers apart, `name` in lower case."""
    if name in HARMLESS_HEADERS:
        return False
    return name in _TELLING_IN_PARTS or is_credential_header(name) or holds_secret(name)


@lru_cache(maxsize=1024)
def _field_credentials(name: bytes, value: bytes) -> tuple[Secret, ...]:
    """Remembered, since a client sends the same credential with each request."""
    if name == b"cookie":
        return tuple(_cookie_credentials(value))
    if name == SUBPROTOCOLS:
        return tuple(subprotocol_credentials(value.decode("latin-1").split(",")))
    return tuple(value_credentials(name.decode("latin-1"), value)) if holds_secret(name) else ()


def subprotocol_credentials(offered: Sequence[str]) -> list[Secret]:
    """The keys among the subprotocols that a client offers: a browser can add no header field."""
    return [
        credential
        for name, key in _keys_among(offered)
        for credential in searchable("subprotocol", (key or name).encode("latin-1"))
    ]


def plain_subprotocols(offered: Sequence[str]) -> list[str]:
    """The client's offered subprotocols, in order, without subprotocols that carry a key."""
    keys = {name for name, key in _keys_among(offered) if key is not None or _is_key(name)}
    return [
        subprotocol.strip()
        for subprotocol in offered
        if subprotocol.strip() and subprotocol.strip() not in keys
    ]


def _keys_among(offered: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Each subprotocol with its key, known by the name or by the name before, or None."""
    before = ""
    for subprotocol in offered:
        name = subprotocol.strip()
        named = _SUBPROTOCOL_KEY.fullmatch(name)
        if named is not None:
            yield name, named[1]
        elif before.lower() in _SCHEME_SUBPROTOCOLS:
            yield name, name
        else:
            yield name, None
        before = name


def _is_key(name: str) -> bool:
    return is_opaque(name.encode("latin-1"))


def url_credentials(request: Request) -> list[Secret]:
    """The credentials in the parameters of a request's target and referrer, decoded; a plus is left
    a plus.
    """
    secrets = []
    if "=" in request.target:
        own = own_parameters(request)
        secrets = _searchable_parameters(credential_parameters(request.target, own))
    if referrer := request.fields.first.get(b"referer"):
        secrets += _parameter_credentials(referrer, in_response=False)
    return secrets


@lru_cache(maxsize=64)
def userinfo_credentials(url: str) -> tuple[Secret, ...]:
    """The credentials written before the host of a URL, also as they are sent in a header."""
    name, colon, password = urlsplit(url).netloc.rpartition("@")[0].partition(":")
    if not name and not password:
        return ()
    pair = unquote_to_bytes(name + colon + password)
    return tuple(
        searchable("userinfo", base64.b64encode(pair)) + _login_credentials("userinfo", pair)
    )


def response_credentials(headers: Headers) -> list[Secret]:
    """The credentials a response issues in its fields, but for those in URLs."""
    secrets: list[Secret] = []
    for name, value in headers:
        lower = name.lower()
        if lower in SET_COOKIE:
            secrets += _cookie_credentials(value.partition(b";")[0])
        elif is_credential_header(lower) and lower not in _IDENTITY_HEADERS:
            secrets += value_credentials(lower.decode("latin-1"), value)
    return secrets


def response_url_credentials(headers: Headers) -> list[Secret]:
    """The credentials a response issues in the URLs of its fields."""
    urls: list[bytes] = []
    for name, value in headers:
        if (lower := name.lower()) in URL_HEADERS:
            urls.append(value)
        elif lower == b"link":
            urls += LINK_URL.findall(value)
    return [secret for url in urls for secret in _parameter_credentials(url)]


def value_credentials(label: str, value: bytes) -> list[Secret]:
    """The opaque value that a field holds, with or without a scheme before it, or else its opaque
    parameters.
    """
    value = value.strip()
    words = value.split()
    if len(words) == _SCHEME_AND_VALUE and words[0].lower() in OPAQUE_SCHEMES:
        secrets = searchable(label, words[1])
        return secrets + (
            _basic_credentials(label, words[1]) if words[0].lower() == b"basic" else []
        )
    if _SEVERAL.search(value) is None and (whole := searchable(label, value)):
        # `sid=…` in a cookie, `user:…` in a login: what stands behind the name is no less a secret.
        assigned = _ASSIGNED.match(value)
        rest = searchable(label, value[assigned.end() :]) if assigned is not None else []
        return [*whole, *rest, *_encoded_credentials(label, value)]
    pieces = [_ASSIGNED.sub(b"", piece, count=1) for piece in _PIECE.findall(value)]
    return [credential for piece in pieces for credential in searchable(label, piece)]


def environment_credentials(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Variable and value of each credential of 12 characters or more, each value once.

    Found by the variable's name, and in the user part of a URL. A log shows none of them.
    """
    name_of: dict[str, str] = {}
    for name in sorted(environ):
        for value in _variable_credentials(name, environ[name].strip()):
            if len(value) >= MIN_VALUE:
                name_of.setdefault(value, name)
    return tuple([(name, value) for value, name in name_of.items()])


def environment_secrets(environ: Mapping[str, str]) -> tuple[Secret, ...]:
    """The credentials that no cassette may hold: the opaque ones.

    A word, such as `PARTITION_KEY=customer_email_address`, would be cut out of every recording.
    """
    return tuple(
        [
            secret
            for name, value in environment_credentials(environ)
            for secret in searchable(
                name.lower().replace("_", "-"), value.encode("utf-8", "surrogateescape")
            )
        ]
    )


def _parameter_credentials(url: bytes, *, in_response: bool = True) -> list[Secret]:
    text = url.decode("utf-8", "surrogateescape")
    return _searchable_parameters(credential_parameters(text, in_response=in_response))


def _searchable_parameters(parameters: Iterable[tuple[str, int, int, bytes]]) -> list[Secret]:
    return [
        secret for name, _, _, value in parameters for secret in searchable(name.lower(), value)
    ]


def _cookie_credentials(value: bytes) -> list[Secret]:
    pairs = [piece.partition(b"=") for piece in value.split(b";")]
    return [
        secret
        for name, _, content in pairs
        if len(content.strip(b' "')) >= MIN_COOKIE
        for secret in searchable(name.strip().decode("latin-1"), content.strip(b' "'))
    ]


def _basic_credentials(label: str, token: bytes) -> list[Secret]:
    try:
        padded = token + b"=" * (-len(token) % 4)
        return _login_credentials(label, base64.b64decode(padded, validate=True))
    except binascii.Error:
        return []


def _encoded_credentials(label: str, value: bytes) -> list[Secret]:
    """What a value says in base64, as a Secret of Kubernetes or a login without its scheme does."""
    if len(value) % 4 or _TEXT_IN_BASE64.fullmatch(value) is None:
        return []
    text = base64.b64decode(value)
    return (
        list(_login_credentials(label, text))
        if text.isascii() and text.decode().isprintable()
        else []
    )


def _login_credentials(label: str, pair: bytes) -> list[Secret]:
    # Some services take the key as the user name, with no password or any.
    name, _, password = pair.partition(b":")
    return searchable(label, pair) + (searchable(label, password) or searchable(label, name))


def searchable(label: str, value: bytes) -> list[Secret]:
    """The value, if it is a secret wherever it stands, and not too long to be searched for."""
    return [Secret(label, value)] if len(value) <= MAX_VALUE and is_opaque(value) else []


def _variable_credentials(name: str, value: str) -> Iterator[str]:
    if (userinfo := _AUTHORITY.match(value)) is not None:
        password = userinfo[1].partition(":")[2]
        yield password
        yield unquote(password)
    elif VARIABLE.search(name):
        yield value
    else:
        yield from _CONNECTION_PASSWORD.findall(value)
