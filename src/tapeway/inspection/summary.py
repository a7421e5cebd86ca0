"""An interaction in a line, and as it is listed: without its bodies."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from tapeway.conversations.gist import Gist, gist
from tapeway.conversations.meaning import is_stream
from tapeway.core.http.headers import find_header
from tapeway.core.json_text import Json
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction, Interaction
from tapeway.core.text import escape_surrogates, escape_unprintable
from tapeway.providers.api_call import describe_call
from tapeway.providers.usage import token_usage

Tone = Literal["good", "bad", "note"]
"""How what came of a request is to be taken."""


@dataclass(frozen=True, slots=True)
class NamedRecording:
    """A recording as it is shown to people."""

    index: int
    summary: str


def named(item: AnyInteraction) -> NamedRecording:
    """An interaction's index and summary line."""
    return NamedRecording(item.index, summary(item))


def listed(items: Iterable[NamedRecording]) -> list[Json]:
    """These recordings as JSON."""
    return [{"index": item.index, "summary": item.summary} for item in items]


def summary(item: AnyInteraction) -> str:
    """One line about an interaction: index, request, outcome, tokens and time, and the gist."""
    return _line(summary_parts(item))


def _line(parts: Iterable[tuple[str, Tone | None]]) -> str:
    return "  ".join([text for text, _ in parts])


def summary_parts(
    item: AnyInteraction, call_gist: Gist | None = None
) -> list[tuple[str, Tone | None]]:
    """The parts of a summary, printable, each with a tone; `call_gist` is the gist where known."""
    parts: list[tuple[str, Tone | None]]
    if isinstance(item, ForeignInteraction):
        failed = item.document.get("error") is not None
        kind = [
            str(item.document[name]) for name in ("kind", "boundary") if item.document.get(name)
        ]
        parts = [
            (" ".join([f"#{item.index}", *kind]), None),
            ("error", "bad") if failed else ("response", "good"),
        ]
    else:
        parts = [
            (f"#{item.index} {item.request.method} {item.request.url}", None),
            *_outcome(item),
            (_call(item), None),
            (_tokens(item), None),
            (f"{item.latency_ms:.0f} ms" if item.latency_ms else "", None),
            *[(f"[{tag}]", None) for tag in item.tags],
        ]
    parts.append((" → ".join(filter(None, call_gist or gist(item))), None))
    return [(escape_unprintable(text), tone) for text, tone in parts if text]


def title(item: AnyInteraction) -> dict[str, Json]:
    """An interaction as a list shows it; large bodies are not read."""
    call_gist = gist(item)
    members: dict[str, Json] = {
        "index": item.index,
        "kind": "http",
        "summary": _line(summary_parts(item, call_gist)),
        "route": None,
        "method": None,
        "path": None,
        "status": None,
        "failure": None,
        "content_type": None,
        "streamed": False,
        "latency_ms": None,
        "first_byte_ms": None,
        "request_bytes": None,
        "response_bytes": None,
        "model": None,
        "usage": None,
        "unmarked": False,
        "tags": [],
        "asked": escape_surrogates(call_gist.asked),
        "answered": escape_surrogates(call_gist.answered),
    }
    if isinstance(item, ForeignInteraction):
        return members | {"kind": str(item.document.get("kind"))}
    request, response = item.request, item.response
    content_type = find_header(response.headers, b"content-type")
    return members | {
        "kind": request.kind,
        "route": request.route,
        "method": escape_surrogates(request.method),
        "path": escape_surrogates(request.target),
        "status": response.status or None,
        "failure": None if item.failure is None else item.failure.kind,
        "content_type": None if content_type is None else content_type.decode("latin-1"),
        "streamed": is_stream(response),
        "latency_ms": item.latency_ms,
        "first_byte_ms": first_byte_ms(item),
        "request_bytes": len(request.body) if request.file is None else request.file.size,
        "response_bytes": response.size,
        "model": item.metadata.get("model"),
        "usage": None if item.usage is None else dict(item.usage),
        "unmarked": response.verdict == "unmarked",
        "tags": [escape_surrogates(tag) for tag in item.tags],
    }


def first_byte_ms(item: Interaction) -> float | None:
    """When the answer of a call began, after the request; None where that is not known."""
    response = item.response
    times = response.chunk_times.times
    return (times[0] if times else response.at_ms) or None


def model_and_tokens(item: AnyInteraction) -> tuple[str | None, int | None]:
    """The model of a recorded or unrecorded call, and its tokens in all."""
    if isinstance(item, ForeignInteraction):
        return None, None
    known = described(item) if not item.metadata else item
    model, tokens = known.metadata.get("model"), (known.usage or {}).get("total_tokens")
    return (
        model if isinstance(model, str) else None,
        tokens if isinstance(tokens, int) else None,
    )


def described(item: Interaction) -> Interaction:
    """An unrecorded exchange, with the API call and the tokens."""
    call = describe_call(item.request.route, item.request)
    if call is None:
        return item
    metadata: dict[str, Json] = {
        "provider": call.provider,
        "endpoint": call.endpoint,
        "model": call.model,
    }
    tokens = token_usage(call, item.response)
    return replace(item, metadata=metadata, usage=None if tokens is None else tokens.fields())


def _outcome(item: Interaction) -> Iterator[tuple[str, Tone | None]]:
    if status := item.response.status:
        yield str(status), "good" if status < 400 else "bad"
    if item.failure is not None:
        yield item.failure.kind, "bad"
    if item.response.verdict in ("truncated", "unmarked"):
        yield item.response.verdict, "note"


def _call(item: Interaction) -> str:
    """The API call of an LLM; a field may exist without a value."""
    values = [item.metadata.get(name) for name in ("endpoint", "model")]
    return " ".join([str(value) for value in values if value])


def _tokens(item: Interaction) -> str:
    total = (item.usage or {}).get("total_tokens")
    if not isinstance(total, int):
        return ""
    return f"{total} token{'' if total == 1 else 's'}"
