"""The credentials that a process was given in its environment."""

import re
from collections.abc import Iterator, Mapping
from urllib.parse import unquote

from tapeway.core.credentials import MIN_VALUE

_CREDENTIAL_NAME = re.compile(
    r"(?:^|_)(?:KEY|APIKEY|ACCESS_KEY_ID|TOKEN|BEARER_TOKEN_BEDROCK|PAT"
    r"|SECRET|(?:PG)?PASSWORD|PASSWD|PASS|PASSPHRASE)$|_PWD$",
    re.IGNORECASE,
)
# Azure's and those of databases.
_IN_CONNECTION = re.compile(
    r"(?:^|;)\s*(?:AccountKey|SharedAccessKey|Password|Pwd)\s*=\s*([^;]+)", re.IGNORECASE
)
_USERINFO = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://[^/?#\s]*?:([^/?#\s]+)@")


def environment_credentials(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Variable and value of each credential, each value once.

    Found by the variable's name, and in the user part of a URL. Values shorter than 12 characters
    are left out: they would hit ordinary words.
    """
    found: dict[str, str] = {}
    for name in sorted(environ):
        for value in _values(name, environ[name].strip()):
            if len(value) >= MIN_VALUE:
                found.setdefault(value, name)
    return tuple([(name, value) for value, name in found.items()])


def _values(name: str, value: str) -> Iterator[str]:
    if (userinfo := _USERINFO.match(value)) is not None:
        yield userinfo[1]
        yield unquote(userinfo[1])
    elif _CREDENTIAL_NAME.search(name):
        yield value
    else:
        yield from _IN_CONNECTION.findall(value)
