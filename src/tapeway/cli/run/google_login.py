"""A login for Google's clients in a replay: a service account of nobody, whose token the proxy hands out.

Clients of Vertex start only with credentials. Those of a service account name the address that issues
tokens; for credentials of a user Google's libraries know the address by themselves.
"""

import base64
import json
from pathlib import Path

VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"
TOKEN_TARGET = "/tapeway-google-login/token"  # noqa: S105 - a path
"""Where the proxy hands out the token."""

_P = int(
    "e8ce747a1bcb451af12305e64ad8a2ded95cbab27ad21f73e8c16ca77266c502"
    "9f4f1b5db6c6c1aad4be9f0d97ea0d1b2f95db13bf40b2244c521658671aab3f",
    16,
)
_Q = int(
    "c3e826bf8e2f8c04be367dd057381d9d09d06b1d84158dff3905edf976fbb8c9"
    "12aeb5fc10c960d0359ebfaa29a40d231707c552b325816d1d897628499db34d",
    16,
)
"""The primes of a key that protects nothing: clients sign with a key before they ask for a token."""
_EXPONENT = 65537
_SEQUENCE, _INTEGER, _OCTETS = 0x30, 0x02, 0x04
_RSA = bytes.fromhex("300d06092a864886f70d0101010500")
_LINE = 64
_PROJECT = "replay-needs-no-project"


def write_login(folder: Path, proxy: str, project: str | None) -> Path:
    """The file of credentials, in a folder of the run."""
    path = folder / "google-login.json"
    account = {
        "type": "service_account",
        "project_id": project or _PROJECT,
        "private_key_id": "replay-needs-no-key",
        "private_key": _private_key(),
        "client_email": "replay@replay-needs-no-project.iam.gserviceaccount.com",
        "client_id": "0",
        "token_uri": proxy + TOKEN_TARGET,
    }
    path.write_text(json.dumps(account), encoding="ascii")
    return path


def token(value: str) -> bytes:
    """The answer of the token's address."""
    return json.dumps({"access_token": value, "expires_in": 3600, "token_type": "Bearer"}).encode()


def _private_key() -> str:
    """The key in PKCS #8, as PEM."""
    exponent = pow(_EXPONENT, -1, (_P - 1) * (_Q - 1))
    numbers = (
        *(0, _P * _Q, _EXPONENT, exponent, _P, _Q),
        *(exponent % (_P - 1), exponent % (_Q - 1), pow(_Q, -1, _P)),
    )
    key = _tagged(_SEQUENCE, b"".join(map(_integer, numbers)))
    whole = _tagged(_SEQUENCE, _integer(0) + _RSA + _tagged(_OCTETS, key))
    text = base64.b64encode(whole).decode()
    lines = [text[start : start + _LINE] for start in range(0, len(text), _LINE)]
    kind = "PRIVATE KEY"
    return "\n".join([f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----", ""])


def _integer(number: int) -> bytes:
    # One bit more: the first one is the sign.
    return _tagged(_INTEGER, number.to_bytes(number.bit_length() // 8 + 1))


def _tagged(tag: int, content: bytes) -> bytes:
    """A value of DER: tag, length, content."""
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes([tag, 0x80 | len(length)]) + length + content
