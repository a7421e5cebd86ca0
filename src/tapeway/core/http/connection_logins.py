"""Recognises logins that hold for a connection, in requests and in responses."""

import re

from tapeway.core.model.messages import Headers

_SCHEME = re.compile(rb"(?:^|,)[ \t]*(?:credssp|kerberos|nego2|negotiate|ntlm)(?=[ \t,]|$)", re.I)
"""A scheme that authenticates a connection: RFC 4559 (Negotiate), MS-NTHT (NTLM), MS-N2HT (Nego2) and
MS-WSMV (Kerberos and CredSSP)."""
_QUOTED = re.compile(rb'"(?:[^"\\]|\\.)*"')
_PERSISTENT = b"persistent-auth"
"""Says of a response whether the connection stays authenticated (MS-N2HT section 2.2.4)."""
LOGIN_FIELDS = frozenset(
    {
        *(b"authorization", b"proxy-authorization", b"www-authenticate", b"proxy-authenticate"),
        _PERSISTENT,
    }
)


def is_connection_login(name: bytes, value: bytes) -> bool:
    """Whether a field, its name in lower case, is part of a login that holds for the connection."""
    if name == _PERSISTENT:
        return value.strip().lower() != b"false"
    if name not in LOGIN_FIELDS:
        return False
    plain = _QUOTED.sub(b"", value) if value.find(b'"') >= 0 else value
    return _SCHEME.search(plain) is not None


def logs_in(headers: Headers) -> bool:
    """Whether one of the fields is part of such a login."""
    for name, value in headers:
        if (lower := name.lower()) in LOGIN_FIELDS and is_connection_login(lower, value):
            return True
    return False
