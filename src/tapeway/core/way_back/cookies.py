"""Changes a service's cookies so that clients send them back to the proxy (RFC 6265, section 5.3)."""

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


def _is_of_host(pair: str) -> bool:
    return pair.strip().startswith(_HOST_PREFIX)


def _led_path(path: str, base: str, prefix: str) -> str:
    """The path of a cookie as the client asks for it."""
    if f"{base}/".startswith(f"{path.rstrip('/')}/"):
        # The cookie is for all that the route leads to.
        return f"{prefix}/"
    return prefix + path.removeprefix(base) if path.startswith(f"{base}/") else path
