"""Response headers whose values differ in each answer although nothing has changed.

They tell when, where and how fast an answer was made, the answer's number, and the rest of a
quota. Two answers that differ in these alone count as equal.
"""

import re
from collections import Counter

from tapeway.core.model.messages import Headers

VOLATILE_HEADERS = frozenset(
    {
        # The clock and caches (RFC 9110, RFC 9111).
        *(b"age", b"date", b"expires", b"retry-after", b"x-cache", b"x-cache-hits", b"x-timer"),
        # Numbers of requests and traces.
        *(b"b3", b"cf-aig-log-id", b"cf-ray", b"helicone-id", b"request-context", b"rndr-id"),
        *(b"traceparent", b"tracestate", b"x-amz-apigw-id", b"x-amz-cf-id", b"x-amz-cf-pop"),
        *(b"x-amz-id-2", b"x-b3-sampled", b"x-cloud-trace-context", b"x-served-by", b"x-vercel-id"),
        # Reports about the network that carry a token each.
        *(b"nel", b"report-to", b"reporting-endpoints"),
        # How the answer was made.
        *(b"cf-cache-status", b"server-timing", b"x-runtime", b"x-time-per-token"),
    }
)
"""Names in lower case that no general form covers."""

_VOLATILE_NAME = re.compile(
    rb".*(?:call|correlation|generation|request|span|trace|transaction)-?id"
    rb"|.*rate-?limit.*"
    rb"|.*-(?:duration|elapsed|latency|millis|ms|seconds|time)"
    rb"|.*-(?:remaining|reset)"
)

VOLATILE_COOKIES = frozenset(
    {
        *(b"__cf_bm", b"__cflb", b"_cfuvid", b"ARRAffinity", b"ARRAffinitySameSite", b"AWSALB"),
        *(b"AWSALBAPP-0", b"AWSALBCORS", b"AWSALBTG", b"AWSALBTGCORS", b"GCLB"),
    }
)
"""Cookies of load balancers and of bot detection: each answer sets another value."""

_EXPIRES = re.compile(rb"; *expires=[^;]*", re.IGNORECASE)


def is_volatile(name: bytes) -> bool:
    """Whether the value of a response header says nothing about the answer."""
    name = name.lower()
    return name in VOLATILE_HEADERS or _VOLATILE_NAME.fullmatch(name) is not None


def differs_each_time(name: bytes) -> bool:
    """Whether a response header is volatile or sets a cookie: each new recording has another value."""
    return is_volatile(name) or name.lower() == b"set-cookie"


def minimal(headers: Headers) -> Headers:
    """The headers without volatile ones, but with Retry-After, because clients obey it."""
    return tuple(
        (name, value)
        for name, value in headers
        if not differs_each_time(name) or name.lower() == b"retry-after"
    )


def same_headers(left: Headers, right: Headers) -> bool:
    """Whether the headers of two stored answers differ at most in volatile ones and in their order."""
    return _stable_headers(left) == _stable_headers(right)


def _stable_headers(headers: Headers) -> Counter[tuple[bytes, bytes]]:
    return Counter(
        (name.lower(), _lasting_value(name, value))
        for name, value in headers
        if not is_volatile(name)
    )


def _lasting_value(name: bytes, value: bytes) -> bytes:
    if name.lower() != b"set-cookie":
        return value
    cookie, _, rest = value.partition(b"=")
    if cookie.strip() in VOLATILE_COOKIES:
        return cookie
    return cookie + b"=" + _EXPIRES.sub(b"", rest)
