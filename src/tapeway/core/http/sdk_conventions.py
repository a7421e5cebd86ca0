"""What SDKs expect: how they mark a repeated call, and the error body they show to their user.

SDKs that retry say so on each try: Stainless ones (OpenAI, Anthropic, Groq, …) count repeats in
`x-stainless-retry-count`, AWS's count tries in `amz-sdk-request: attempt=2; max=3`.
"""

import re
from collections.abc import Mapping

from tapeway.core.http.headers import find_header
from tapeway.core.json_text import Json
from tapeway.core.model.messages import Headers

_NUMBER = re.compile(rb"[0-9]{1,6}")
_AMAZON = re.compile(rb"(?:^|;)\s*attempt=([0-9]{1,6})\s*(?:;|$)")


def attempt_number(headers: Headers) -> int:
    """The number of the try within its call, from 1; 0 if the client does not send it."""
    retries = find_header(headers, b"x-stainless-retry-count")
    if retries is not None and _NUMBER.fullmatch(retries):
        return int(retries) + 1
    found = _AMAZON.search(find_header(headers, b"amz-sdk-request") or b"")
    return int(found[1]) if found is not None else 0


def error_document(
    code: str, message: str, request_id: str, tapeway: Mapping[str, Json]
) -> dict[str, Json]:
    """The body of one of tapeway's own errors; `tapeway` has more details.

    The fields are those that the OpenAI, Anthropic, Google and AWS clients print.
    """
    error: dict[str, Json] = {
        "type": code,
        "code": code,
        "status": code.upper(),
        "message": message,
        "param": None,
    }
    return {
        "type": "error",
        "error": error,
        "message": message,
        "request_id": request_id,
        "tapeway": dict(tapeway),
    }
