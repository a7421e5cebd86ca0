"""Which names of fields in a body mark their value as a secret.

Names are compared by their words: `api_key`, `apiKey`, `X-Api-Key` and `OPENAI_API_KEY` all end in
the words `api key`. A field called `token` or `key` alone is none: log-probabilities have tokens.
"""

import re
from functools import lru_cache

ISSUED = frozenset(
    {
        "accesstoken",
        "refreshtoken",
        "idtoken",
        "clientsecret",
        "secretaccesskey",
        "sessiontoken",
    }
)
"""A value under such a name is a secret in a response too, whatever it looks like."""

_SECRET = ISSUED | {
    "accountkey",
    "actortoken",
    "apikey",
    "apisecret",
    "apitoken",
    "appsecret",
    "authkey",
    "authorizationtoken",
    "authtoken",
    "bearertoken",
    "clientassertion",
    "masterkey",
    "passphrase",
    "passwd",
    "password",
    "privatekey",
    "secretkey",
    "securitytoken",
    "sharedaccesskey",
    "signingkey",
    "subjecttoken",
    "subscriptionkey",
    "webhooksecret",
}
# Prose has these too, but not without a space.
_SECRET_WORDS = frozenset({"assertion", "secret"})

# Repeated, or one of several: `password2`, `password_confirmation`.
_REPEATED = frozenset({"confirm", "confirmation"})
# A login has a scheme before its token or is a list of parameters; other texts of several words
# tell about one: `"prior_authorization": "approved for 12 visits"`.
_LOGIN = re.compile(
    rb"\s*(?:(?:(?:bearer|basic|bot|key|token|api[-_]?key)\s+|[\w-]+\s+(?=\S*[0-9]))?\S+|.*=.*)\s*",
    re.IGNORECASE | re.DOTALL,
)

# What follows names of the kind in JSON, in JSON inside a string, and in XML.
_STEMS = "|".join(
    [
        "assertion",
        "authorization",
        "pass(?:word|wd|phrase)",
        "secret",
        "(?:access|actor|api|auth|authorization|bearer|id|refresh|security|session|subject)_?token",
        "(?:account|api|auth|master|private|secret|signing|subscription|access)_?key",
    ]
).replace("_?", "[-_. ]?")
_ESCAPED = r"\\+u00[2-7][0-9A-Fa-f]"
_NAME = rf"(?:(?i:{_STEMS})(?:[-_. ]?(?i:confirm(?:ation)?|[0-9]{{1,2}}))?|{_ESCAPED}(?:[\w.-]|{_ESCAPED}){{0,40}})"
NAME_CANDIDATE = rf'{_NAME}(?:\\*"(?:\s|\\+[nrt])*:|>)'
"""Where such a name may occur, in RE2's syntax, for the prefilter and for the search in bodies."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_MOST_WORDS = 3
KEY_LIKE = re.compile(rb"(?:(?:Bearer|Basic|Token) )?(?=[!-~]*[0-9])[!-~]{16,}")
"""Distinguishes a key in a response from words about it: `"api_key": "is not valid"`."""


@lru_cache(maxsize=1024)
def name_kind(name: str) -> str:
    """The kind of value that a name indicates: `issued`, `secret`, `login`, `word`, or "" for no
    secret.
    """
    words = [word.lower() for word in _WORD.findall(name)]
    while words and (words[-1] in _REPEATED or words[-1].isdigit()):
        words.pop()
    for count in range(1, min(len(words), _MOST_WORDS) + 1):
        ending = "".join(words[-count:])
        if ending in ISSUED:
            return "issued"
        if ending in _SECRET:
            return "secret"
        if ending == "authorization":
            return "login"
        if ending in _SECRET_WORDS and count == len(words):
            return "word"
    return "secret" if len(words) > 1 and words[-1] == "secret" else ""


def is_secret_field(name: str, value: bytes, *, in_response: bool) -> bool:
    """Whether a value under this name is a secret, in a request or in a response."""
    match name_kind(name):
        case "issued":
            # A text with spaces is about a secret.
            return (
                not in_response or len(value.split()) == 1 or KEY_LIKE.fullmatch(value) is not None
            )
        case "secret" | "login" | "word" if in_response:
            return KEY_LIKE.fullmatch(value) is not None
        case "login":
            return _LOGIN.fullmatch(value) is not None
        case "secret":
            return True
        case "word":
            return len(value.split()) == 1
    return False
