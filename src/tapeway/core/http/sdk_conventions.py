"""Which requests are one call that an SDK repeated.

SDKs that retry say so on each try: Stainless ones (OpenAI, Anthropic, Groq, …) count repeats in
`x-stainless-retry-count`, AWS's count tries in `amz-sdk-request: attempt=2; max=3`.

The body of an error of tapeway's own, in a shape every SDK shows to its user.

The fields are those the OpenAI, Anthropic, Google and AWS clients print.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from tapeway.core.http.headers import find_header
from tapeway.core.json_text import Json
from tapeway.core.model.control import Outcome
from tapeway.core.model.messages import Headers

MAX_CALLS = 1024
"""Calls that may be repeated and are remembered; of more, the oldest are taken for done."""

_ALIKE = 16
"""Equal calls at the same time, of which each may be repeated."""
_NUMBER = re.compile(rb"[0-9]{1,6}")
_AMAZON = re.compile(rb"(?:^|;)\s*attempt=([0-9]{1,6})\s*(?:;|$)")


class Attempt(NamedTuple):
    """One try of a call: the match key of what is asked, and which try it is, from 1."""

    key: bytes
    number: int


def attempt_number(headers: Headers) -> int:
    """Which try of its call a request is, from 1; 0 where the client does not say."""
    retries = find_header(headers, b"x-stainless-retry-count")
    if retries is not None and _NUMBER.fullmatch(retries):
        return int(retries) + 1
    found = _AMAZON.search(find_header(headers, b"amz-sdk-request") or b"")
    return int(found[1]) if found is not None else 0


class AttemptHistory:
    """Remembers how each try ended, so that the next one can be told from a call of its own."""

    def __init__(self) -> None:
        self._ended: dict[Attempt, list[Outcome]] = {}

    def follow(self, attempt: Attempt, outcome: Outcome) -> Outcome | None:
        """Note how a try ended; how the one ended that it repeats, None where there was none."""
        repeated = None
        if attempt.number > 1 and (before := self._ended.get(_before(attempt))):
            repeated = before.pop()
        ended = self._ended.pop(attempt, [])
        self._ended[attempt] = [*ended[1 - _ALIKE :], outcome]
        if len(self._ended) > MAX_CALLS:
            del self._ended[next(iter(self._ended))]
        return repeated


def _before(attempt: Attempt) -> Attempt:
    return Attempt(attempt.key, attempt.number - 1)


def error_document(
    code: str, message: str, request_id: str, tapeway: Mapping[str, Json]
) -> dict[str, Json]:
    """The error as every listener answers it; `tapeway` says more to people and tools."""
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
