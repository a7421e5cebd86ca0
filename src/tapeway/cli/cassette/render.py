"""Interactions and conversations as text for people."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tapeway.cli import terminal
from tapeway.conversations.model import ConversationMessage, document
from tapeway.core.json_text import Json, NotJson, dump, parse
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction, Interaction
from tapeway.core.model.messages import Headers, Request, Response
from tapeway.core.text import decode_utf8
from tapeway.formats.native.document import encode


@dataclass(frozen=True, slots=True)
class NamedRecording:
    """A recording as it is shown to people."""

    index: int
    summary: str


def named(item: AnyInteraction) -> NamedRecording:
    """An interaction by its index and its line."""
    return NamedRecording(item.index, summary(item))


def listed(items: Iterable[NamedRecording]) -> list[Json]:
    """These recordings as JSON."""
    return [{"index": each.index, "summary": each.summary} for each in items]


def summary(item: AnyInteraction) -> str:
    """One line about an interaction: its index, request, outcome, tokens and time."""
    return "  ".join([text for text, _ in _parts(item)])


def summary_in_colours(item: AnyInteraction) -> str:
    """The same for a terminal, what came of the request in colour."""
    return "  ".join(
        [text if role is None else terminal.styled(text, role) for text, role in _parts(item)]
    )


def _parts(item: AnyInteraction) -> list[tuple[str, terminal.Role | None]]:
    parts: list[tuple[str, terminal.Role | None]]
    if isinstance(item, ForeignInteraction):
        failed = item.document.get("error") is not None
        kind = [
            str(item.document[each]) for each in ("kind", "boundary") if item.document.get(each)
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
    return [(terminal.line(text), role) for text, role in parts if text]


def _outcome(item: Interaction) -> Iterator[tuple[str, terminal.Role | None]]:
    if status := item.response.status:
        yield str(status), "good" if status < 400 else "bad"
    if item.failure is not None:
        yield item.failure.kind, "bad"
    if item.response.verdict in ("truncated", "unmarked"):
        yield item.response.verdict, "note"


def _call(item: Interaction) -> str:
    """Which call of an LLM's API it is; a field may be there without a value."""
    values = [item.metadata.get(each) for each in ("endpoint", "model")]
    return " ".join([str(each) for each in values if each])


def whole(item: AnyInteraction) -> str:
    """An interaction as HTTP messages; one of another kind as its document."""
    if isinstance(item, ForeignInteraction):
        return terminal.block(dump(encode(item), indent=True).decode())
    return terminal.block("\n".join([summary(item), "", *_request(item), "", *_response(item)]))


def conversations(messages: Sequence[ConversationMessage]) -> str:
    """The messages, with a heading for each conversation."""
    return terminal.block("\n".join(_conversations(messages)))


def _tokens(item: Interaction) -> str:
    total = (item.usage or {}).get("total_tokens")
    return terminal.counted(total, "token") if isinstance(total, int) else ""


def _request(item: Interaction) -> Iterator[str]:
    request = item.request
    yield f"{request.method} {request.url}"
    yield from _headers(request.headers)
    yield from _body(request)


def _response(item: Interaction) -> Iterator[str]:
    response = item.response
    if item.failure is not None:
        yield f"failed ({item.failure.kind}): {item.failure.message}"
    if response.status:
        yield f"{response.head.version} {response.status} {response.head.reason}".rstrip()
        yield from _headers(response.headers)
        yield from _body(response)


def _headers(headers: Headers) -> Iterator[str]:
    for name, value in headers:
        yield f"{name.decode('latin-1')}: {value.decode('utf-8', 'surrogateescape')}"


def _body(message: Request | Response) -> Iterator[str]:
    if message.file is not None:
        yield ""
        yield f"({terminal.size(message.file.size)}, sha256 {message.file.digest})"
    elif message.body:
        yield ""
        yield _body_text(message.body)


def _body_text(body: bytes) -> str:
    try:
        return dump(parse(body), indent=True).decode()
    except NotJson:
        text = decode_utf8(body)
    return f"({terminal.size(len(body))} that are no text)" if text is None else text.rstrip("\n")


def _conversations(messages: Sequence[ConversationMessage]) -> Iterator[str]:
    number = -1
    for message in messages:
        if message.conversation != number:
            if number >= 0:
                yield ""
            number = message.conversation
            yield f"Conversation {number}"
        yield ""
        yield from _message(message)


def _message(message: ConversationMessage) -> Iterator[str]:
    fields = document(message)
    at = f"  {message.at}" if message.at else ""
    about = [fields.get(name) for name in ("model", "name", "tool_call_id")]
    suffix = "".join([f"  {each}" for each in about if each])
    yield f"{message.role}  #{message.interaction}{at}{suffix}"
    for name, label in (("thinking", "(thinking) "), ("content", "")):
        if text := fields.get(name):
            yield _indented(f"{label}{text}")
    for part in message.parts:
        if part.kind == "call":
            yield _indented(f"-> {part.name}({_compact(part.value)}) {part.id}".rstrip())
        elif part.kind == "attachment":
            yield _indented(f"[{_compact(part.value)}]")
    for note in message.notes:
        yield _indented(f"! {note}")


def _compact(value: Json) -> str:
    return value if isinstance(value, str) else dump(value).decode()


def _indented(text: str) -> str:
    return "  " + text.replace("\n", "\n  ")
