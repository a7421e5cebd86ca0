"""Credentials in requests, responses and the environment: their places and values."""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from tapeway.core.model.messages import Headers
from tapeway.core.redaction.secret_names import KEY_LIKE, name_kind

MIN_VALUE = 12
"""Shorter values are not searched for elsewhere: they would hit ordinary words."""

MAX_VALUE = 8 * 1024
"""Longer values are documents, not credentials."""

MIN_COOKIE = 16
"""Shorter cookie values are settings, not sessions."""

CREDENTIAL_PARAMETERS = frozenset(
    {
        "access_token",
        "api-key",
        "api_key",
        "apikey",
        "auth_token",
        "client_secret",
        "code_verifier",
        "device_code",
        "id_token",
        "id_token_hint",
        "key",
        "oauth_token",
        "password",
        "private_token",
        "refresh_token",
        "secret",
        "sig",
        "signature",
        "subscription-key",
        "token",
        "upload_id",
        "x-amz-credential",
        "x-amz-security-token",
        "x-amz-signature",
        "x-goog-credential",
        "x-goog-signature",
    }
)
"""Query parameters, in lower case, whose value is never stored, besides those named like a secret."""

OAUTH_QUERY = re.compile(
    r"(?:\A|[?&#])(?:client_id|client_secret|code_verifier|grant_type|redirect_uri|state"
    r"|token_type_hint)="
)
"""Recognises a query or form of OAuth, where `code` is a secret; elsewhere it is any code."""

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
"""Response fields with a URL: the client requests it next, so only its parameters are redacted."""

LINK_URL = re.compile(rb"(?<=<)[^<>]*(?=>)")
"""A URL in a Link field."""

_PARAMETER = re.compile(rb"[?&#]([^?=&#]*)=([^&#]+)")
_CREDENTIAL_HEADERS = frozenset(
    {
        b"authorization",
        b"proxy-authorization",
        b"chatgpt-account-id",
        b"dd-application-key",
        b"ocp-apim-subscription-key",
        b"openai-organization",
        b"openai-project",
        b"anthropic-organization-id",
        b"x-goog-user-project",
        b"x-key",
        b"mcp-session-id",
    }
)
_CREDENTIAL_HEADER = re.compile(
    rb"(?:^|[-_])(?:auth|authorization|token|secret|password"
    rb"|(?:rapid)?api[-_]?(?:key|token)"
    rb"|(?:access|auth|functions|master|private|secret|subscription)[-_]key)$"
)

# Schemes whose value is one opaque token. Others (Digest, AWS4-HMAC-SHA256) are parameter lists:
# taken apart, `content-type` in SignedHeaders would become a secret and be cut out of every body.
_OPAQUE_SCHEMES = frozenset(
    {b"bearer", b"basic", b"token", b"api-key", b"api_key", b"apikey", b"key", b"bot"}
)

_TOKEN_PARAMETER = re.compile(
    rb"""(?:\A|[\s,])(?:token|key|api[-_]?key|access_token|oauth_token)="?([^",\s]+)""",
    re.IGNORECASE,
)
_CREDENTIAL_VARIABLE = re.compile(
    r"(?:^|_)(?:KEY|APIKEY|ACCESS_KEY_ID|TOKEN|BEARER_TOKEN_BEDROCK|PAT"
    r"|SECRET|(?:PG)?PASSWORD|PASSWD|PASS|PASSPHRASE)$|_PWD$",
    re.IGNORECASE,
)

# Of connection strings: Azure's and those of databases.
_CONNECTION_PASSWORD = re.compile(
    r"(?:^|;)\s*(?:AccountKey|SharedAccessKey|Password|Pwd)\s*=\s*([^;]+)", re.IGNORECASE
)
_USERINFO = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://[^/?#\s]*?:([^/?#\s]+)@")


@dataclass(frozen=True, slots=True)
class Secret:
    """A value that must not be stored, and the name of the place it was seen in."""

    label: str
    value: bytes = field(repr=False)


@lru_cache(maxsize=1024)
def is_credential_header(name: bytes) -> bool:
    """Whether a field of this name (lower case) carries a credential."""
    return name in _CREDENTIAL_HEADERS or _CREDENTIAL_HEADER.search(name) is not None


@lru_cache(maxsize=1024)
def is_credential_parameter(name: str, query: str) -> bool:
    """Whether a parameter of this name (decoded) carries a credential in this query or URL."""
    if name == "code":
        return OAUTH_QUERY.search(query) is not None
    return name.lower() in CREDENTIAL_PARAMETERS or name_kind(name) in ("issued", "secret", "login")


def request_head_credentials(headers: Headers, target: str) -> tuple[Secret, ...]:
    """The credentials a request shows anywhere but in its body."""
    found = header_credentials(headers)
    return (*found, *target_credentials(target)) if "=" in target else found


@lru_cache(maxsize=512)
def header_credentials(headers: Headers) -> tuple[Secret, ...]:
    """The credentials in a request's fields, long enough to be searched for anywhere else.

    Remembered, since a client sends the same fields with nearly every request.
    """
    found: list[Secret] = []
    for name, value in headers:
        lower = name.lower()
        if lower == b"cookie":
            found += _cookie_credentials(value)
        elif lower == b"referer":
            found += _parameter_credentials(value)
        elif is_credential_header(lower):
            found += value_credentials(lower.decode("latin-1"), value)
    return tuple(found)


def target_credentials(target: str) -> list[Secret]:
    """The credentials in a target's parameters, decoded; a plus is left a plus."""
    return _parameter_credentials(target.encode("utf-8", "surrogateescape"))


@lru_cache(maxsize=64)
def userinfo_credentials(url: str) -> tuple[Secret, ...]:
    """The credentials written before the host of a URL, also as they are sent in a header."""
    name, colon, password = urlsplit(url).netloc.rpartition("@")[0].partition(":")
    if not name and not password:
        return ()
    pair = unquote_to_bytes(name + colon + password)
    return tuple(
        _searchable("userinfo", base64.b64encode(pair)) + _login_credentials("userinfo", pair)
    )


def response_credentials(headers: Headers) -> list[Secret]:
    """The credentials a response issues in its header."""
    found: list[Secret] = []
    for name, value in headers:
        lower = name.lower()
        if lower == b"set-cookie":
            found += _cookie_credentials(value.partition(b";")[0])
        elif lower in URL_HEADERS:
            found += _parameter_credentials(value)
        elif lower == b"link":
            found += [
                each for url in LINK_URL.findall(value) for each in _parameter_credentials(url)
            ]
        elif is_credential_header(lower):
            found += _searchable(lower.decode("latin-1"), value.strip())
    return found


def value_credentials(label: str, value: bytes) -> list[Secret]:
    """The credentials in a value that has a scheme before it, or is one as a whole."""
    value = value.strip()
    words = value.split(None, 1)
    if len(words) < 2:
        return _searchable(label, value)
    scheme, rest = words
    opaque = scheme.lower() in _OPAQUE_SCHEMES and len(words) == len(value.split())
    found = [] if opaque else _searchable(label, value)
    if opaque or KEY_LIKE.fullmatch(rest):
        # Two words may be anything: the second is only searched for if it is not a word.
        found += _searchable(label, rest)
    if scheme.lower() == b"basic":
        found += _basic_credentials(label, rest)
    return found + [
        each for token in _TOKEN_PARAMETER.findall(rest) for each in _searchable(label, token)
    ]


def environment_credentials(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Variable and value of each credential, each value once.

    Found by the variable's name, and in the user part of a URL. Values shorter than 12 characters
    are left out: they would hit ordinary words.
    """
    found: dict[str, str] = {}
    for name in sorted(environ):
        for value in _variable_credentials(name, environ[name].strip()):
            if len(value) >= MIN_VALUE:
                found.setdefault(value, name)
    return tuple([(name, value) for value, name in found.items()])


def _parameter_credentials(url: bytes) -> list[Secret]:
    found: list[Secret] = []
    query = url.decode("latin-1")
    for name, value in _PARAMETER.findall(url):
        if is_credential_parameter(plain := unquote(name), query):
            found += _searchable(plain.lower(), unquote_to_bytes(value))
    return found


def _cookie_credentials(value: bytes) -> list[Secret]:
    pairs = [piece.partition(b"=") for piece in value.split(b";")]
    return [
        Secret(name.strip().decode("latin-1"), content.strip(b' "'))
        for name, _, content in pairs
        if MIN_COOKIE <= len(content.strip(b' "')) <= MAX_VALUE
    ]


def _basic_credentials(label: str, token: bytes) -> list[Secret]:
    try:
        padded = token + b"=" * (-len(token) % 4)
        return _login_credentials(label, base64.b64decode(padded, validate=True))
    except binascii.Error:
        return []


def _login_credentials(label: str, pair: bytes) -> list[Secret]:
    # Some services take the key as the user name, with no password or any.
    name, _, password = pair.partition(b":")
    return _searchable(label, pair) + (_searchable(label, password) or _searchable(label, name))


def _searchable(label: str, value: bytes) -> list[Secret]:
    """The value, unless it is too short or too long to be searched for."""
    return [Secret(label, value)] if MIN_VALUE <= len(value) <= MAX_VALUE else []


def _variable_credentials(name: str, value: str) -> Iterator[str]:
    if (userinfo := _USERINFO.match(value)) is not None:
        yield userinfo[1]
        yield unquote(userinfo[1])
    elif _CREDENTIAL_VARIABLE.search(name):
        yield value
    else:
        yield from _CONNECTION_PASSWORD.findall(value)
