"""Interactions and messages as people read them."""

from collections.abc import Iterator, Sequence

from tapeway.cli import terminal
from tapeway.conversations.model import ConversationMessage, document
from tapeway.core.json_text import Json, NotJson, dump, parse
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction, Interaction
from tapeway.core.model.messages import BodyFile, Headers, Request, Response
from tapeway.core.text import decode_utf8, escape_surrogates
from tapeway.formats.native.document import encode


def summary(item: AnyInteraction) -> str:
    """One line about it."""
    if isinstance(item, ForeignInteraction):
        kind, boundary = item.document.get("kind"), item.document.get("boundary", "")
        outcome = "error" if "error" in item.document else "response"
        return terminal.line(f"#{item.index} {kind} {boundary} {outcome}")
    told = [
        f"#{item.index} {escape_surrogates(item.request.method)} {escape_surrogates(item.request.url)}",
        str(item.response.status) if item.response.status else "",
        item.failure.kind if item.failure else "",
        item.response.verdict if item.response.verdict == "truncated" else "",
        " ".join(
            [str(item.metadata[each]) for each in ("endpoint", "model") if each in item.metadata]
        ),
        _tokens(item),
        f"{item.latency_ms:.0f} ms" if item.latency_ms else "",
        *[f"[{tag}]" for tag in item.tags],
    ]
    return terminal.line("  ".join(filter(None, told)))


def whole(item: AnyInteraction) -> str:
    """All of it: head and body of both sides, other tools' own records as their document."""
    if isinstance(item, ForeignInteraction):
        return terminal.block(dump(encode(item), indent=True).decode())
    return terminal.block("\n".join([summary(item), "", *_request(item), "", *_response(item)]))


def conversations(messages: Sequence[ConversationMessage]) -> str:
    """What was said, a heading for each conversation."""
    return terminal.block("\n".join([*_conversations(messages)]))


def _tokens(item: Interaction) -> str:
    total = (item.usage or {}).get("total_tokens")
    return terminal.counted(total, "token") if isinstance(total, int) else ""


def _request(item: Interaction) -> Iterator[str]:
    request = item.request
    yield f"{escape_surrogates(request.method)} {escape_surrogates(request.url)}"
    yield from _headers(request.headers)
    yield from _body(request, request.file)


def _response(item: Interaction) -> Iterator[str]:
    response = item.response
    if item.failure is not None:
        yield f"failed ({item.failure.kind}): {item.failure.message}"
    if response.status:
        yield escape_surrogates(
            f"{response.head.version} {response.status} {response.head.reason}".rstrip()
        )
        yield from _headers(response.headers)
        yield from _body(response, response.file)


def _headers(headers: Headers) -> Iterator[str]:
    for name, value in headers:
        yield f"{name.decode('latin-1')}: {escape_surrogates(value.decode('utf-8', 'surrogateescape'))}"


def _body(message: Request | Response, file: BodyFile | None) -> Iterator[str]:
    if file is not None:
        yield ""
        yield f"({terminal.size(file.size)}, sha256 {file.digest})"
    elif message.body:
        yield ""
        yield _shown(message.body)


def _shown(body: bytes) -> str:
    try:
        return dump(parse(body), indent=True).decode()
    except NotJson:
        pass
    if (text := decode_utf8(body)) is None:
        return f"({terminal.size(len(body))} that are no text)"
    return text.rstrip("\n")


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
    said = document(message)
    at = f"  {message.at}" if message.at else ""
    yield f"{message.role}  #{message.interaction}{at}{_of(said)}"
    for name in ("thinking", "content"):
        if value := said.get(name):
            mark = "(thinking) " if name == "thinking" else ""
            yield _indented(f"{mark}{value}")
    for part in message.parts:
        if part.kind == "call":
            yield _indented(f"-> {part.name}({_compact(part.value)}) {part.id}".rstrip())
        elif part.kind == "attachment":
            yield _indented(f"[{_compact(part.value)}]")
    for note in message.notes:
        yield _indented(f"! {note}")


def _of(said: dict[str, Json]) -> str:
    told = [said.get(name) for name in ("model", "name", "tool_call_id")]
    return "".join([f"  {each}" for each in told if each])


def _compact(value: Json) -> str:
    return value if isinstance(value, str) else dump(value).decode()


def _indented(text: str) -> str:
    return "  " + text.replace("\n", "\n  ")
