"""The token counts in an LLM response."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from tapeway.core.json_text import Json, peek_json
from tapeway.core.model.messages import Response
from tapeway.core.streams.documents import documents
from tapeway.providers.api_call import ApiCall
from tapeway.providers.endpoints import UsageFields, endpoint_named


class Usage(NamedTuple):
    """Tokens an LLM call was charged for, in OpenAI's terms."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int

    def fields(self) -> dict[str, Json]:
        """The counts as a recording stores them."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.total_tokens,
        }


def token_usage(call: ApiCall, response: Response, value: Json = None) -> Usage | None:
    """The token counts of a response, None if there are none to read.

    Later counts of a stream replace earlier ones, field by field; those of a session are added up. `value` is the parsed plain JSON
    body, if it was read.
    """
    usage = endpoint_named(call.endpoint).usage
    if usage is None:
        return None
    counts: dict[str, int] = {}
    if value is None:
        values: Iterable[Json] = _documents_with_counts(usage, response)
    else:
        values = _values_in(value) if _has_mark(response.body, usage.marks) else ()
    for document in values:
        for path in usage.paths:
            _count(usage, _value_at(document, path), counts)
    return _sum(usage, counts) if counts else None


def cached_prompt_tokens(call: ApiCall, response: Response) -> int | None:
    """How many tokens of the prompt the service had cached, None where the answer does not tell."""
    usage = endpoint_named(call.endpoint).usage
    if usage is None:
        return None
    paths = [tuple(path.split(".")) for path in usage.cached]
    marks = tuple([path[-1].encode() for path in paths])
    last: int | None = None
    for text in documents(response, marks) if marks else ():
        for value in _values_in(peek_json(text)) if _has_mark(text, marks) else ():
            for place, path in product(usage.paths, paths):
                count = _value_at(value, (*place, *path))
                last = count if type(count) is int else last
    return last


def _documents_with_counts(usage: UsageFields, response: Response) -> Iterator[Json]:
    # Most events of a stream have no counts; they are not parsed.
    for text in documents(response, usage.marks):
        if _has_mark(text, usage.marks):
            yield from _values_in(peek_json(text))


def _has_mark(text: bytes, marks: Sequence[bytes]) -> bool:
    # `in` builds and drops an error message before a search of bytes in bytes.
    find = text.find
    for mark in marks:  # noqa: SIM110 - any() costs five times the search
        if find(mark) >= 0:
            return True
    return False


def _values_in(value: Json) -> Sequence[Json]:
    # Without alt=sse, Gemini streams one JSON array.
    return value if isinstance(value, list) else (value,)


def _value_at(value: Json, path: Sequence[str]) -> Json:
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def _count(usage: UsageFields, value: Json, counts: dict[str, int]) -> None:
    if isinstance(value, dict):
        for name in usage.all_fields:
            if type(count := value.get(name)) is int and count >= 0:
                counts[name] = count + (counts.get(name, 0) if usage.adds_up else 0)


def _sum(usage: UsageFields, counts: Mapping[str, int]) -> Usage:
    prompt = completion = 0
    for name in usage.prompt:
        prompt += counts.get(name, 0)
    for name in usage.completion:
        completion += counts.get(name, 0)
    total = counts.get(usage.total, 0) if usage.total else 0
    # Some embeddings report only the total: all of it is the prompt.
    if not prompt and not completion:
        prompt = total
    return Usage(prompt, completion, total or prompt + completion)
