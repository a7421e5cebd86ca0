"""The headers of every Anthropic answer, and the error shape."""

from tapeway.testing.answer import Headers, StandInAnswer, compact, with_length
from tapeway.testing.reply import StandInState
from tapeway.testing.request import JsonObject, StandInRequest

JSON_TYPE = "application/json"
FAILURES = {
    400: ("invalid_request_error", "messages: the stand-in was asked for this error"),
    401: ("authentication_error", "invalid x-api-key"),
    404: ("not_found_error", "Not found"),
    429: ("rate_limit_error", "This request would exceed your organization's rate limit."),
    529: ("overloaded_error", "Overloaded"),
}
"""The type and message of an error by its status."""


def headers(state: StandInState, content_type: str) -> Headers:
    """Header fields in the order and case they come in."""
    return (
        ("Content-Type", content_type),
        ("anthropic-ratelimit-requests-limit", "4000"),
        ("anthropic-ratelimit-requests-remaining", "3999"),
        ("request-id", state.new_id("req_011", 21)),
        ("strict-transport-security", "max-age=31536000; includeSubDomains; preload"),
        ("anthropic-organization-id", "00000000-0000-4000-8000-000000000000"),
        ("via", "1.1 google"),
        ("cf-cache-status", "DYNAMIC"),
        (
            "set-cookie",
            f"_cfuvid={state.new_id('', 43)}-{state.seconds()}123-0.0.1.1-604800000; path=/; "
            "domain=.api.anthropic.com; HttpOnly; Secure; SameSite=None",
        ),
        ("X-Robots-Tag", "none"),
        ("Server", "cloudflare"),
        ("CF-RAY", f"{state.new_id('', 16)}-FRA"),
    )


def answer(body: object, state: StandInState) -> StandInAnswer:
    """A successful answer with a JSON body."""
    return with_length(200, headers(state, JSON_TYPE), compact(body))


def failure(
    status: int, call: StandInRequest, state: StandInState, message: str = ""
) -> StandInAnswer:
    """An error as Anthropic answers it."""
    kind, text = FAILURES.get(status, ("api_error", "Internal server error"))
    fields = headers(state, JSON_TYPE)
    request_id = dict(fields)["request-id"]
    if status == 429:
        fields += (("retry-after", "1"),)
    error: JsonObject = {"type": kind, "message": message or text}
    body: JsonObject = {"type": "error", "error": error, "request_id": request_id}
    return with_length(status, fields, compact(body))
