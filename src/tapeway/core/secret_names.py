"""Which names of fields in a body say that their value is a secret.

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
"""What a service gives out under such a name is a secret in an answer too, however it looks."""

_SECRET = ISSUED | {
    "accountkey",
    "actortoken",
    "apikey",
    "apisecret",
    "apitoken",
    "appsecret",
    "authkey",
    "authorization",
    "authorizationtoken",
    "authtoken",
    "bearertoken",
    "clientassertion",
    "masterkey",
    "passphrase",
    "passwd",
    "password",
    "privatekey",
    "proxyauthorization",
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
CANDIDATE = rf'(?i:{_STEMS})(?:\\*"(?:\s|\\+[nrt])*:|>)'
"""Where such a name may stand, in RE2's syntax: a single search for whoever asks for more."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_MOST_WORDS = 3
# Tells a key in an answer from a word about it: `"api_key": "is not valid"`.
_LIKE_A_KEY = re.compile(rb"(?:(?:Bearer|Basic|Token) )?(?=[!-~]*[0-9])[!-~]{16,}")


@lru_cache(maxsize=1024)
def kind(name: str) -> str:
    """`issued`, `secret`, `word`, or nothing for a name that says no such thing."""
    words = [word.lower() for word in _WORD.findall(name)]
    for count in range(1, min(len(words), _MOST_WORDS) + 1):
        ending = "".join(words[-count:])
        if ending in ISSUED:
            return "issued"
        if ending in _SECRET:
            return "secret"
        if ending in _SECRET_WORDS and count == len(words):
            return "word"
    return "secret" if len(words) > 1 and words[-1] == "secret" else ""


def hides(name: str, value: bytes, *, answer: bool) -> bool:
    """Whether a value under this name is a secret, in a request or in an answer."""
    match kind(name):
        case "issued":
            return True
        case "secret" | "word" if answer:
            return _LIKE_A_KEY.fullmatch(value) is not None
        case "secret":
            return True
        case "word":
            return len(value.split()) == 1
    return False
