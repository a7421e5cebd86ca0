"""The headers of every OpenAI answer, Cloudflare's and the platform's, and the error shape."""

from collections.abc import Sequence
from datetime import timedelta

from tapeway.testing.answer import (
    Headers,
    StandInAnswer,
    compact,
    in_two_chunks,
    pretty,
    stream,
    with_length,
    with_stream_fault,
)
from tapeway.testing.reply import StandInState
from tapeway.testing.request import JsonObject, StandInRequest, text_at

JSON_TYPE = "application/json"
SSE_TYPE = "text/event-stream; charset=utf-8"


def headers(state: StandInState, content_type: str) -> Headers:
    """Header fields in the order, case and number they come in."""
    expires = (state.now() + timedelta(minutes=30)).strftime("%a, %d-%b-%y %H:%M:%S GMT")
    cookie_scope = "path=/; domain=.api.openai.com; HttpOnly; Secure; SameSite=None"
    started = state.seconds()
    return (
        ("Content-Type", content_type),
        ("access-control-expose-headers", "X-Request-ID"),
        ("openai-organization", "user-standin0organization"),
        ("openai-processing-ms", str(200 + int(state.token_hex(1), 16))),
        ("openai-project", "proj_standin0project"),
        ("openai-version", "2020-10-01"),
        ("x-ratelimit-limit-requests", "10000"),
        ("x-ratelimit-remaining-requests", "9999"),
        ("x-ratelimit-reset-requests", "6ms"),
        ("x-request-id", state.new_id("req_", 32)),
        ("cf-cache-status", "DYNAMIC"),
        (
            "set-cookie",
            f"__cf_bm={state.new_id('', 43)}-{started}-1.0.1.1-{state.new_id('', 64)}; "
            f"expires={expires}; {cookie_scope}",
        ),
        (
            "set-cookie",
            f"_cfuvid={state.new_id('', 43)}-{started}123-0.0.1.1-604800000; {cookie_scope}",
        ),
        ("X-Content-Type-Options", "nosniff"),
        ("Server", "cloudflare"),
        ("CF-RAY", f"{state.new_id('', 16)}-FRA"),
        ("alt-svc", 'h3=":443"; ma=86400'),
    )


_FAILURES: dict[int, tuple[str, str | None, str | None, str]] = {
    400: ("invalid_request_error", "messages", None, "Invalid 'messages': the stand-in was asked for this error."),
    401: ("invalid_request_error", None, "invalid_api_key", "Incorrect API key provided."),
    404: ("invalid_request_error", None, "model_not_found", "The model does not exist or you do not have access to it."),
    429: ("requests", None, "rate_limit_exceeded", "Rate limit reached for requests per min (RPM): Limit 3, Used 3, Requested 1. Please try again in 1s."),
}  # fmt: skip
_SERVER_FAILURE = (
    "server_error",
    None,
    None,
    "The server had an error while processing your request. Sorry about that!",
)


def answer(body: object, state: StandInState) -> StandInAnswer:
    """A successful answer with a JSON body."""
    return in_two_chunks(200, headers(state, JSON_TYPE), pretty(body))


def event(value: JsonObject) -> bytes:
    """A server-sent event that is named where its data has a type."""
    kind = text_at(value, "type")
    name = b"event: " + kind.encode() + b"\n" if kind else b""
    return name + b"data: " + compact(value) + b"\n\n"


def streamed(
    call: StandInRequest, state: StandInState, events: Sequence[bytes], error: JsonObject
) -> StandInAnswer:
    """An answer of events, with the error among them if the call asks for it."""
    return stream(headers(state, SSE_TYPE), with_stream_fault(call, events, event(error)))


def error_body(status: int, message: str = "") -> JsonObject:
    """The error object alone, as it also occurs inside a failing stream."""
    kind, param, code, text = _FAILURES.get(status, _SERVER_FAILURE)
    return {"error": {"message": message or text, "type": kind, "param": param, "code": code}}


def failure(
    status: int, call: StandInRequest, state: StandInState, message: str = ""
) -> StandInAnswer:
    """An error as OpenAI answers it."""
    fields = headers(state, JSON_TYPE)
    if status == 429:
        fields += (("retry-after", "1"), ("retry-after-ms", "1000"))
    return with_length(status, fields, pretty(error_body(status, message)))
