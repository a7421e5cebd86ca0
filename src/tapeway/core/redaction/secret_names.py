"""Which names of fields mark their value as a secret.

Names are compared by their last words: `api_key`, `apiKey`, `X-Api-Key` and `OPENAI_API_KEY` all end
in the words `api key`. Under names with several meanings only an opaque value is a secret. Under
`token` and `key` alone, neighbouring fields must tell of a credential too, since log-probabilities
have tokens and maps have keys.
"""

import re
from functools import lru_cache
from typing import Literal

from tapeway.core.redaction.opaque import has_key_form, is_opaque

Kind = Literal["credential", "password", "login", "word", "ambiguous", "generic", ""]
"""The kinds of names.

- `credential`: a key, a token or a client's secret. The value does not decide what matches.
- `password`: a user's password, passphrase or one-time code.
- `login`: a scheme and a credential, as in a header.
- `word`: a secret or a password, but prose and lists of results have the name too.
- `ambiguous`: an opaque value, or opaque parts of the value, are a secret.
- `generic`: `token` or `key`, a secret if opaque and confirmed by neighbouring fields.
"""

Use = Literal["query", "link", "header"]
"""Further places where a name counts, next to fields of bodies.

- `query`: a query parameter of this name is a credential, whatever the value.
- `link`: in a URL inside a text, an opaque parameter of this name is a credential.
- `header`: a header field with a name that ends so carries a credential.
"""

_TABLE: tuple[tuple[Kind, tuple[Use, ...], str], ...] = (
    (
        "credential",
        ("query",),
        "account_key actor_token admin_token api_secret app_secret authorization_token bearer_token"
        " bot_token client_assertion consumer_key deploy_token ephemeral_key github_token gitlab_token"
        " hapikey hf_token huggingface_token job_token npm_token oauth_token sas_token security_token"
        " service_role_key service_token session_token shared_access_key signing_key slack_token"
        " subject_token vault_token webhook_secret",
    ),
    ("credential", ("query", "header"), "access_key api_token auth_key master_key private_key"),
    ("credential", ("query", "header"), "secret_key subscription_key"),
    (
        "credential",
        ("query", "link"),
        "access_token auth_token client_secret id_token private_token",
    ),
    ("credential", ("query", "link"), "refresh_token"),
    ("credential", ("query", "link", "header"), "api_key"),
    ("password", ("query", "header"), "password"),
    (
        "password",
        (),
        "one_time_code otp_code pass_code pass_phrase passcode passphrase passwd requirepass",
    ),
    ("login", ("header",), "authorization"),
    ("word", ("query", "header"), "secret"),
    ("word", ("query",), "pwd"),
    ("word", (), "assertion pass"),
    ("ambiguous", ("query",), "app_key bearer sas user_key"),
    ("ambiguous", ("header",), "auth"),
    ("ambiguous", (), "connection_string cookie credential credentials database_url dsn"),
    ("ambiguous", (), "encryption_key identified_by jwt server_url webhook_url"),
    ("generic", ("header",), "token"),
    ("generic", (), "key"),
    # Names of parameters and headers alone, as they are spelled there.
    ("", ("query",), "awsaccesskeyid code_verifier device_code id_token_hint sessionid"),
    ("", ("query",), "x-amz-credential x-goog-credential"),
    ("", ("query", "link"), "api-key apikey signature subscription-key upload_id"),
    ("", ("query", "link"), "x-amz-security-token x-amz-signature x-goog-signature"),
    ("", ("link",), "sig"),
    ("", ("header",), "apikey apitoken csrf functions_key rapidapi_key rapidapi_token rapidapikey"),
    ("", ("header",), "rapidapitoken xsrf"),
)
"""Every name by its end: the kind of value in a body field, and further places that count."""


def names_of(*kinds: Kind) -> list[str]:
    """The names of the given kinds, words joined by underscores."""
    return [name for kind, _, names in _TABLE if kind in kinds for name in names.split()]


def _names_with_use(use: Use) -> list[str]:
    return [name for _, uses, names in _TABLE if use in uses for name in names.split()]


QUERY_NAMES = frozenset(_names_with_use("query"))
"""Query parameters, in lower case, whose value is never stored, besides those named like a secret.

Those of `AMBIGUOUS_NAMES` are never stored where they have the form of a key.
"""
LINK_NAMES = "|".join(sorted(_names_with_use("link"), key=len, reverse=True))
"""The parameters of URLs inside texts, as alternatives of a pattern."""
HEADER_ENDS = "|".join([name.replace("_", "[-_]") for name in _names_with_use("header")])
"""How the names of header fields end that carry credentials, as alternatives of a pattern."""

AMBIGUOUS_NAMES = frozenset({"appid", "auth", "code", "key", "sig", "token"})
"""Names of fields of requests, in lower case, that also mean other things: a page, a place, a country.

What such a field holds is a credential only where it has the form of a key.
"""

CREDENTIAL_OBJECT = r"(?:auth|authentication|authorization|credentials?|api_?key|secrets?)"
"""How the name of an object ends whose `key` or `token` is a credential."""
TYPE_NAME = r"(?:type|scheme|kind|method)"
CREDENTIAL_TYPE = r"[\w -]{0,40}?(?:key|token|auth|bearer|basic|secret|credential)"
"""How the value of a field called `type` begins beside such a `key` or `token`."""

_WORD, _GENERIC = frozenset(names_of("word")), tuple(names_of("generic"))
_KINDS: dict[str, Kind] = {
    name.replace("_", ""): kind
    for kind, _, names in _TABLE
    if kind in ("credential", "password", "ambiguous", "login")
    for name in names.split()
}

_LAST_WORD: dict[str, Kind] = {"secret": "credential", "pwd": "password", "pass": "ambiguous"}

# Repeated, or one of several: `password2`, `password_confirmation`.
_REPEATED = frozenset({"confirm", "confirmation"})
OPAQUE_SCHEMES = frozenset(
    {b"bearer", b"basic", b"bot", b"key", b"token", b"apikey", b"api-key", b"api_key"}
)
"""Authentication schemes whose value is one opaque token.

Others (Digest, AWS4-HMAC-SHA256) are lists of parameters. Taken apart, `content-type` in
SignedHeaders would become a secret and be cut out of every body.
"""
_MOST_WORDS = 3
_TWO_WORDS = 2
_PATH = (b"/", b"~", b"./", b"../", b"C:")

_JOINED = "(?:PASSWORD|PASSWD|PASSPHRASE)$"
"""How a word ends that is no known name, such as `PGPASSWORD`."""
VARIABLE = re.compile(
    rf"(?:^|_)(?:KEY|APIKEY|ACCESS_KEY_ID|TOKEN|BEARER_TOKEN_BEDROCK|PAT|SECRET|PASS)$|{_JOINED}|_PWD$",
    re.IGNORECASE,
)
"""Recognises the name of an environment variable that holds a credential."""
_UPPER_CASE = re.compile(r"(?:^|\.)[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+$")
_JOINED_WORD = re.compile(_JOINED, re.IGNORECASE)
_HEADER_NAME = re.compile(r"[A-Za-z0-9-]+-(?:key|token)", re.IGNORECASE)

# What follows names of the kind in JSON, in JSON inside a string, and in XML.
_STEMS = "|".join(sorted(names_of("credential", "password", "word", "ambiguous", "login"))).replace(
    "_", "[-_. ]?"
)
_ESCAPED = r"\\+u00[2-7][0-9A-Fa-f]"
_NAME = (
    rf"(?:(?i:{_STEMS})(?:[-_. ]?(?i:confirm(?:ation)?|[0-9]{{1,2}}))?"
    r"|[A-Z0-9]_(?:TOKEN|KEY|KEY_ID|PAT|PASS)|-(?i:key|token)"
    rf"|{_ESCAPED}(?:[\w.-]|{_ESCAPED}){{0,40}})"
)
NAME_IN_TEXT = rf"(?:(?:(?i:{_STEMS})|[A-Z0-9]_(?:TOKEN|KEY|PAT|PASS)|-(?i:key|token))[0-9]{{0,2}})"
"""The end of such a name in prose and in code, in RE2's syntax."""

_SPACE = r"(?:\s|\\+[nrt])*"
_COLON = rf'\\*"{_SPACE}:'
_LONG_VALUE = rf'{_SPACE}\\*"(?:(?i:bearer|basic|token) )?[!#-\[\]-~]{{12}}'

TAG_START, TAG_END = r"(?:<|&lt;|\\+u003[cC])", r"(?:>|&gt;|\\+u003[eE])"
"""What begins and ends a tag of XML, also inside XML and inside JSON."""
_ELEMENT = rf"{_NAME}{TAG_END}|{TAG_START}[A-Za-z0-9_.:-]*{_NAME}\s[^<>]*?{TAG_END}"

NAME_CANDIDATE = rf"{_NAME}{_COLON}|{_ELEMENT}|(?i:{'|'.join(_GENERIC)}){_COLON}{_LONG_VALUE}"
"""Where such a name may occur, in RE2's syntax, for the prefilter and for the search in bodies.

The pattern ends before the value, except for a generic name, which needs a long value.
"""

NO_CREDENTIALS = frozenset(
    {
        *(
            "idempotency-key",
            "x-idempotency-key",
            "surrogate-key",
            "x-cache-key",
            "prompt-cache-key",
        ),
        *("sec-websocket-key", "x-partition-key", "x-routing-key"),
    }
)
"""Header fields with a name of the kind whose value is none."""

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


@lru_cache(maxsize=1024)
def name_kind(name: str) -> Kind:
    """The kind of value under a field's name; "" if the value is no secret."""
    words = [word.lower() for word in _WORDS.findall(name)]
    while words and (words[-1] in _REPEATED or words[-1].isdigit()):
        words.pop()
    if len(words) == 1 and words[0] in _WORD:
        return "word"
    if len(words) == 1 and words[0] in _GENERIC:
        return "generic"
    for count in range(min(len(words), _MOST_WORDS), 0, -1):
        if (kind := _KINDS.get("".join(words[-count:]))) is not None:
            return kind
    if words and words[-1] in _LAST_WORD:
        return _LAST_WORD[words[-1]]
    is_variable = _UPPER_CASE.search(name) and VARIABLE.search(name)
    is_joined = words and _JOINED_WORD.search(words[-1])
    return "ambiguous" if is_variable or is_joined or _is_header_name(name) else ""


def is_secret_field(name: str, value: bytes, *, is_field: bool, beside: bool = False) -> bool:
    """Whether a value under this name is a secret.

    `is_field` marks a field of a request, where names mean more than in a response or inside a text;
    `beside` means that neighbouring fields tell of a credential.
    """
    kind = name_kind(name)
    if is_field and kind in ("credential", "password"):
        return True
    if is_field and kind == "generic":
        return beside and is_key(value)
    if is_field and kind == "login":
        return _is_login(value)
    if is_field and kind == "word" and len(value.split()) == 1 and not value.startswith(_PATH):
        return True
    return kind != "" and (kind != "generic" or beside) and is_opaque(without_scheme(value))


def is_ambiguous(name: str) -> bool:
    """Whether a field of a request with this name holds a credential only by the form of its value."""
    return name.lower() in AMBIGUOUS_NAMES


def is_key(value: bytes) -> bool:
    """Whether what an ambiguous field holds, with or without a scheme, has the form of a key."""
    return has_key_form(without_scheme(value))


def without_scheme(value: bytes) -> bytes:
    """A value without a leading scheme such as Bearer."""
    words = value.split(None, 1)
    if len(words) == _TWO_WORDS and words[0].lower() in OPAQUE_SCHEMES:
        return words[1].strip()
    return value


def _is_header_name(name: str) -> bool:
    return _HEADER_NAME.fullmatch(name) is not None and name.lower() not in NO_CREDENTIALS


def _is_login(value: bytes) -> bool:
    """Whether a value is a credential with or without a scheme, or a list of parameters.

    Texts of several words only mention one: `"prior_authorization": "approved for 12 visits"`.
    """
    words = value.split()
    if len(words) == _TWO_WORDS:
        return (
            words[0].lower() in OPAQUE_SCHEMES
            or b"=" in value
            or any(48 <= at < 58 for at in words[1])
        )
    return len(words) == 1 or b"=" in value
