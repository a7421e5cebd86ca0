"""Changes a service's cookies so that clients send them back to the proxy (RFC 6265, section 5.3)."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime

from tapeway.core.model.messages import Headers, ResponseHead

_EXPIRES = re.compile(rb"(;\s*expires\s*=\s*)([^;]*)", re.IGNORECASE)
_SET_COOKIE = b"set-cookie"
_SECURE_ONLY = frozenset({"secure", "partitioned"})
"""Attributes of cookies that browsers take over TLS alone."""
_HOST_PREFIX = "__Host-"
"""A cookie whose name begins so must have the path `/`."""


def needs_change(cookie: bytes) -> bool:
    """Whether a Set-Cookie value has an attribute that names where the cookie may be sent."""
    lower = cookie.lower()
    return any(attribute in lower for attribute in (b"domain", b"path", b"secure", b"partitioned"))


def lead_cookie(cookie: str, base: str, prefix: str, *, tls: bool) -> str:
    """A Set-Cookie value for the proxy, which serves the service's paths below `base` at `prefix`.

    `tls` is whether the client speaks TLS with the proxy.
    """
    pair, *attributes = cookie.split(";")
    led = [pair]
    for attribute in attributes:
        name, equals, value = attribute.partition("=")
        what = name.strip().lower()
        if what == "domain" or (what in _SECURE_ONLY and not tls):
            continue
        if what == "path" and value.strip().startswith("/") and not _is_of_host(pair):
            attribute = f"{name}{equals}{_led_path(value.strip(), base, prefix)}"
        led.append(attribute)
    return ";".join(led)


def has_expiry(headers: Headers) -> bool:
    """Whether a cookie of a response ends at a stated time."""
    return any(
        name.lower() == _SET_COOKIE and _EXPIRES.search(value) is not None
        for name, value in headers
    )


def with_later_expiry(head: ResponseHead, first_day: str, now: float) -> ResponseHead:
    """The head with its cookies as old as they were when the answer was recorded.

    The answer is as old as its Date says, or else as its cassette, which began at `first_day`. A
    cookie that the service took away stays away. `now` is in seconds since the epoch.
    """
    recorded = _moment(head.value(b"date")) or _moment_of_iso(first_day)
    if recorded is None:
        return head

    def moved(match: re.Match[bytes]) -> bytes:
        expires = _moment(match[2])
        if expires is None or expires <= recorded:
            return match[0]
        try:
            later = max(expires, expires + (datetime.fromtimestamp(now, UTC) - recorded))
        except OverflowError:
            return match[0]
        return match[1] + format_datetime(later, usegmt=True).encode()

    headers = tuple(
        [
            (name, _EXPIRES.sub(moved, value) if name.lower() == _SET_COOKIE else value)
            for name, value in head.headers
        ]
    )
    return replace(head, headers=headers)


def _moment(written: bytes | None) -> datetime | None:
    """The moment that a date of HTTP or of a cookie names, in UTC."""
    try:
        moment = parsedate_to_datetime((written or b"").decode("latin-1").strip())
    except (ValueError, OverflowError):
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _moment_of_iso(written: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(written)
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _is_of_host(pair: str) -> bool:
    return pair.strip().startswith(_HOST_PREFIX)


def _led_path(path: str, base: str, prefix: str) -> str:
    """The path of a cookie as the client asks for it."""
    if f"{base}/".startswith(f"{path.rstrip('/')}/"):
        # The cookie is for all that the route leads to.
        return f"{prefix}/"
    return prefix + path.removeprefix(base) if path.startswith(f"{base}/") else path
