"""Which headers of an answer say nothing about it."""

import pytest

from tapeway.core.http.volatile_headers import is_volatile, same_headers
from tapeway.core.model.messages import Headers

VOLATILE = [
    "Date",
    "Age",
    "Expires",
    "Retry-After",
    "Request-Id",
    "X-Request-ID",
    "x-amzn-RequestId",
    "apim-request-id",
    "x-ms-request-id",
    "x-ms-client-request-id",
    "x-github-request-id",
    "X-Correlation-Id",
    "CF-Ray",
    "x-amz-cf-id",
    "x-amzn-trace-id",
    "X-Cloud-Trace-Context",
    "traceparent",
    "x-b3-traceid",
    "x-ratelimit-remaining-tokens",
    "X-RateLimit-Reset",
    "anthropic-ratelimit-requests-reset",
    "RateLimit-Policy",
    "x-rate-limit-limit",
    "openai-processing-ms",
    "x-response-time",
    "Server-Timing",
    "x-envoy-upstream-service-time",
    "X-Amzn-Bedrock-Invocation-Latency",
    "x-litellm-call-id",
    "x-litellm-response-duration-ms",
    "x-trial-endpoint-call-remaining",
    "x-compute-time",
    "X-Runtime",
    "NEL",
    "Report-To",
    "X-Served-By",
    "X-Cache",
    "x-generation-id",
    "X-Kong-Upstream-Latency",
]
LASTING = [
    "Content-Type",
    "Content-Encoding",
    "ETag",
    "Last-Modified",
    "Location",
    "Vary",
    "Link",
    "Set-Cookie",
    "X-Model",
    "openai-version",
    "openai-model",
    "openai-organization",
    "anthropic-organization-id",
    "Cache-Control",
    "WWW-Authenticate",
    "X-Total-Count",
    "X-Next-Page",
    "X-Request-Model",
    "Content-Language",
    "Server",
    "Via",
    "x-compute-characters",
    "x-should-retry",
    "Deprecation",
]


@pytest.mark.parametrize("name", VOLATILE)
def test_clocks_numbers_quotas_and_durations_are_volatile(name: str) -> None:
    assert is_volatile(name.encode())


@pytest.mark.parametrize("name", LASTING)
def test_what_describes_the_answer_is_not(name: str) -> None:
    assert not is_volatile(name.encode())


BASE: Headers = (
    (b"Content-Type", b"a/b"),
    (b"Set-Cookie", b"sid=1; Path=/; Expires=Mon, 1; Secure"),
)


@pytest.mark.parametrize(
    ("headers", "same"),
    [
        (BASE, True),
        (BASE[::-1], True),
        ((*BASE, (b"Date", b"now"), (b"CF-Ray", b"8")), True),
        (((b"content-type", b"a/b"), BASE[1]), True),
        ((BASE[0], (b"set-cookie", b"sid=1; Path=/; expires=Tue, 2; Secure")), True),
        ((*BASE, (b"Set-Cookie", b"__cf_bm=v; path=/")), False),
        ((BASE[0], (b"Set-Cookie", b"sid=2; Path=/; Expires=Mon, 1; Secure")), False),
        ((BASE[0], (b"Set-Cookie", b"sid=1; Path=/x; Expires=Mon, 1; Secure")), False),
        (((b"Content-Type", b"a/c"), BASE[1]), False),
        (BASE[:1], False),
        ((*BASE, BASE[0]), False),
        ((*BASE, (b"x-new", b"")), False),
    ],
)
def test_headers_are_the_same_but_for_volatile_ones(headers: Headers, same: bool) -> None:
    assert same_headers(BASE, headers) is same
    assert same_headers(headers, BASE) is same


def test_the_value_of_a_load_balancer_s_cookie_does_not_count() -> None:
    left: Headers = ((b"Set-Cookie", b"__cf_bm=one; path=/; expires=Mon"),)
    right: Headers = ((b"Set-Cookie", b"__cf_bm=two; path=/; expires=Tue"),)

    assert same_headers(left, right)
