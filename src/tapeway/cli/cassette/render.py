"""Interactions and conversations as text for people."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tapeway.cli import terminal
from tapeway.conversations.model import ConversationMessage, document
from tapeway.conversations.turns import CallTurn, CassetteTurns
from tapeway.core.json_text import Json, NotJson, dump, parse
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction, Interaction
from tapeway.core.model.messages import Headers, Request, Response
from tapeway.core.text import decode_utf8
from tapeway.engine.report.lines import dollars
from tapeway.formats.native.document import encode
from tapeway.inspection.summary import summary, summary_parts

_LONGEST_SAID = 400
"""Characters of a session's message; the page and JSON have all of them."""


def summary_in_colours(item: AnyInteraction) -> str:
    """One line about an interaction for a terminal, what came of the request in colour."""
    parts = summary_parts(item)
    return "  ".join(
        [text if tone is None else terminal.styled(text, tone) for text, tone in parts]
    )


def whole(item: AnyInteraction) -> str:
    """An interaction as HTTP messages; one of another kind as its document."""
    if isinstance(item, ForeignInteraction):
        return terminal.block(dump(encode(item), indent=True).decode())
    return terminal.block("\n".join([summary(item), "", *_request(item), "", *_response(item)]))


def conversations(messages: Sequence[ConversationMessage]) -> str:
    """The messages, with a heading for each conversation."""
    return terminal.block("\n".join(_conversations(messages)))


def session(index: int, recorded: Mapping[str, Any]) -> str:
    """A WebSocket session: a line for each message, with sender and time."""
    return "\n".join([terminal.line(line) for line in _session(index, recorded)])


def _session(index: int, recorded: Mapping[str, Any]) -> Iterator[str]:
    yield f"Session #{index}"
    for message in recorded["messages"]:
        value, sound = message["value"], message["sound"]
        text = message["text"] if value is None else dump(value).decode()
        heard = "" if sound is None else f"{sound['size']} bytes of sound"
        title = f"  {message['by']}  {message['at_ms'] / 1000:.2f} s  {message['type']}"
        pieces = f"{message['pieces']} pieces" if message["pieces"] > 1 else ""
        yield "  ".join(filter(None, (title, pieces, heard, _shortened(text))))
    if recorded["left_out"]:
        yield f"  {terminal.counted(recorded['left_out'], 'more message')}"
    if (close := recorded["close"]) is not None:
        reason = f": {close['reason']}" if close["reason"] else ""
        yield f"  closed by the {close['by']} with code {close['code']}{reason}"


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_SAID else f"{text[:_LONGEST_SAID]}…"


def turns(of_cassette: CassetteTurns) -> Iterator[str]:
    """The calls as turns, a line each, then the sums and the largest tool results."""
    yield "Turns"
    for turn in of_cassette.turns:
        yield terminal.line(_indented("  ".join(_turn(turn))))
    yield terminal.line(_indented(_sums(of_cassette.sums)))
    if results := of_cassette.largest_results:
        yield "Largest tool results"
    for result in results:
        name = f"  {result.name}" if result.name else ""
        size = terminal.counted(result.characters, "character")
        yield terminal.line(f"  #{result.interaction}{name}  {size}")


def _turn(turn: CallTurn) -> Iterator[str]:
    yield f"#{turn.interaction}"
    if turn.prompt_tokens or turn.completion_tokens:
        yield f"{turn.prompt_tokens} + {terminal.counted(turn.completion_tokens, 'token')}"
    if turn.cached_tokens:
        yield f"{turn.cached_tokens} cached"
    if turn.usd is not None:
        yield dollars(turn.usd)
    yield f"{terminal.counted(len(turn.new), 'new message')}, {turn.messages} sent"
    prefix = turn.prefix
    if prefix.breaks_at is not None:
        yield f"the prefix breaks at {prefix.breaks_at}"
    elif prefix.of:
        yield "the prefix is kept"


def _sums(sums: Mapping[str, Json]) -> str:
    """All turns in a line."""
    usd, unpriced = sums["usd"], sums["unpriced"]
    parts = [terminal.counted(int(str(sums["turns"])), "turn")]
    if sums["total_tokens"]:
        parts.append(f"{sums['prompt_tokens']} + {sums['completion_tokens']} tokens")
    if isinstance(usd, float):
        parts.append(dollars(usd))
    if isinstance(unpriced, list) and unpriced:
        parts.append(f"no price for {', '.join(map(str, unpriced))}")
    return ", ".join(parts)


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
    suffix = "".join([f"  {note}" for note in about if note])
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
