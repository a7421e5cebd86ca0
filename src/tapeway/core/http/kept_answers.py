"""The answers that a mode keeps which also replays: a service would give them again.

A success or a redirect is kept. An error may be passing (429, 503), or be about the caller and not
about the question (401). The other client errors are answers (there is no such file), but a call to
a model is worth asking again. AWS's services say most of this with a 400 and the type of the error.
"""

import re

from tapeway.core.json_text import json_object
from tapeway.core.model.messages import Response
from tapeway.core.model.request_fields import is_json, media_type

_SUCCESSES = frozenset(range(200, 400))
_CLIENT_ERRORS = frozenset(range(400, 500))
_ABOUT_THE_CALLER = frozenset({401, 403, 407})
_PASSING = frozenset({408, 421, 423, 425, 429})

BAD_REQUEST = 400
_LARGEST_ERROR = 64 * 1024
_ERROR_TYPE = b"x-amzn-errortype"
_XML_CODE = re.compile(rb"<Error>.*?<Code>([\w.]{1,100})</Code>", re.DOTALL)

# The common errors of AWS's services, and the errors that botocore takes for throttling.
_ABOUT_CREDENTIALS = re.compile(
    r"AccessDenied|AccessKeyId|AuthFailure|^Authorization|ClientTokenId|Credential"
    r"|ExpiredToken|InvalidToken|MissingAuthenticationToken|OptInRequired|RequestExpired"
    r"|SecurityToken|Signature|TooSkewed|TokenRefresh|UnrecognizedClient"
)
_THROTTLED = re.compile(
    r"Throttl|TooManyRequests|SlowDown|PriorRequestNotComplete|TransactionInProgress"
    r"|(?:Bandwidth|Request)LimitExceeded|^LimitExceeded|ThroughputExceeded"
)


def kept_statuses(*, calls_model: bool) -> frozenset[int]:
    """The statuses of answers that are kept."""
    if calls_model:
        return _SUCCESSES
    return _SUCCESSES | (_CLIENT_ERRORS - _ABOUT_THE_CALLER - _PASSING)


def error_of_the_caller(response: Response) -> str | None:
    """The type of an AWS error about credentials, signatures or throttling; None for another answer.

    The response has no content coding.
    """
    if response.status != BAD_REQUEST:
        return None
    kind = _aws_error_type(response)
    if _ABOUT_CREDENTIALS.search(kind) or _THROTTLED.search(kind):
        return kind
    return None


def _aws_error_type(response: Response) -> str:
    """The type of an AWS error in any of the protocols, "" for another answer."""
    stated = (response.head.value(_ERROR_TYPE) or b"").decode("latin-1")
    if not stated and response.size <= _LARGEST_ERROR:
        stated = _type_in_body(response)
    # `com.amazonaws.dynamodb.v20120810#ThrottlingException:http://internal.amazon.com/coral/…`
    return stated.partition(":")[0].rpartition("#")[2].strip()


def _type_in_body(response: Response) -> str:
    content_type = response.head.value(b"content-type") or b""
    if is_json(content_type) or media_type(content_type).startswith(b"application/x-amz-json"):
        stated = (json_object(response.body) or {}).get("__type")
        return stated if isinstance(stated, str) else ""
    code = _XML_CODE.search(response.body)
    return "" if code is None else code[1].decode()
