"""Requests, answers and messages of conversations, independent of the provider."""

import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal

from tapeway.core.digests import sha256
from tapeway.core.json_text import Json, NotJson, canonical, parse

PartKind = Literal["text", "thinking", "call", "result", "attachment"]
ASSISTANT, SYSTEM, TOOL, USER = "assistant", "system", "tool", "user"
_FAILURE_HEAD = 200
_FAILURE = re.compile(
    r"error\b|an error occurred|traceback \(most recent call last\)", re.IGNORECASE
)
"""How agents' frameworks begin the result of a tool that raised an exception."""
_FAILURE_FIELDS = ("error", "is_error", "isError")
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)
INSTRUCTION_ROLES = frozenset({SYSTEM, "developer"})


@dataclass(frozen=True, slots=True)
class ContentPart:
    """A text, a thought, a call of a tool or its result, or a reference to other content.

    `value` holds the arguments of a call, and the known properties of an attachment; `data` an
    attached raster image as a data: URL. `failed` marks the result of a tool that reports a failure.
    """

    kind: PartKind
    text: str = ""
    value: Json = None
    id: str = ""
    name: str = ""
    data: str = field(default="", repr=False)
    failed: bool = False


@dataclass(frozen=True, slots=True)
class ConversationTurn:
    """A message of one role, as a request or an answer carries it."""

    role: str
    parts: tuple[ContentPart, ...]


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """A request: instructions, history, and the continued answer, if any.

    `previous` identifies an answer or a conversation stored by the service.
    """

    system: tuple[ConversationTurn, ...]
    turns: tuple[ConversationTurn, ...]
    previous: str = ""


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """An answer. `stop_reason` is the reason of an early stop, empty for a normal end.

    `error` is the error reported by the service; `created` the service's time, as the service
    writes it; `names` are identifiers by which a later request may continue from here.
    """

    turn: ConversationTurn
    stop_reason: str = ""
    error: str = ""
    created: Json = None
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def text(value: str) -> ContentPart:
    return ContentPart("text", value)


def thinking(value: str) -> ContentPart:
    return ContentPart("thinking", value)


def tool_call(name: str, arguments: Json, identifier: str = "") -> ContentPart:
    """A call of a tool; arguments that are JSON text are parsed."""
    if isinstance(arguments, str):
        with suppress(NotJson):
            arguments = parse(arguments) if arguments.strip() else {}
    return ContentPart("call", value=arguments, id=identifier, name=name)


def tool_result(
    value: str, identifier: str = "", name: str = "", *, failed: bool = False
) -> ContentPart:
    """The result of a tool; `failed` is what the dialect says of it, where it has a field for that."""
    failed = failed or _says_failure(value)
    return ContentPart("result", value, id=identifier, name=name, failed=failed)


def _says_failure(text: str) -> bool:
    """Whether a result tells of a failure itself: most dialects have no field for one."""
    start = text[:_FAILURE_HEAD].lstrip()
    if not start.startswith("{"):
        return _FAILURE.match(start) is not None
    if not any(f'"{name}"' in text for name in _FAILURE_FIELDS):
        return False
    try:
        value = parse(text)
    except NotJson:
        return False
    return isinstance(value, dict) and any(value.get(name) for name in _FAILURE_FIELDS)


def named_results(turns: Iterable[ConversationTurn]) -> tuple[ConversationTurn, ...]:
    """The turns, with the results of tools named as the calls before them name the tools.

    A result belongs to the call of its identifier, and without one to the call of its place.
    """
    names: dict[str, str] = {}
    waiting: list[str] = []
    named: list[ConversationTurn] = []
    for turn in turns:
        parts: list[ContentPart] = []
        for part in turn.parts:
            if part.kind == "call" and part.id:
                names[part.id] = part.name
            elif part.kind == "call":
                waiting.append(part.name)
            elif part.kind == "result":
                placed = waiting.pop(0) if waiting and not part.id else ""
                part = replace(part, name=part.name or names.get(part.id) or placed)
            parts.append(part)
        named.append(replace(turn, parts=tuple(parts)))
    return tuple(named)


def attachment(kind: str, **known: Json) -> ContentPart:
    """Content other than text, with type and known properties; empty properties are left out."""
    members: dict[str, Json] = {"type": kind}
    return ContentPart(
        "attachment", value=members | {k: v for k, v in known.items() if v not in ("", None)}
    )


def embedded(kind: str, data: str, media_type: str = "") -> ContentPart:
    """An attachment that the request contains, as base64 or a data: URL, by its hash."""
    if data.startswith("data:"):
        head, _, data = data.removeprefix("data:").partition(",")
        media_type = head.partition(";")[0] or media_type
    try:
        content = b64decode(data)
    except (NotBase64, ValueError):
        content = data.encode("utf-8", "replace")
    digest = sha256(content).hexdigest()
    known = attachment(kind, media_type=media_type, bytes=len(content), sha256=digest)
    media = image_type(content)
    return replace(known, data=f"data:{media};base64,{data}") if media else known


def image_type(content: bytes) -> str:
    """The type of a raster image, by its first bytes; empty for any other content."""
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return "image/webp"
    return next((media for mark, media in _IMAGES if content.startswith(mark)), "")


def linked(kind: str, url: str) -> ContentPart:
    """An attachment by its URL; a data: URL contains all of it."""
    return embedded(kind, url) if url.startswith("data:") else attachment(kind, url=url)


def split_instructions(turns: Iterable[ConversationTurn], previous: str = "") -> ParsedRequest:
    """A request of these turns: leading instructions, then the rest."""
    joined = [replace(turn, parts=_joined(turn)) for turn in turns]
    spoken = tuple([turn for turn in joined if turn.parts])
    at = next(
        (n for n, turn in enumerate(spoken) if turn.role not in INSTRUCTION_ROLES), len(spoken)
    )
    return ParsedRequest(spoken[:at], spoken[at:], previous)


def merge_assistant_turns(turns: Iterable[ConversationTurn]) -> tuple[ConversationTurn, ...]:
    """The turns, with adjacent turns of the assistant merged: clients send them back divided otherwise."""
    merged: list[ConversationTurn] = []
    for turn in turns:
        if merged and turn.role == ASSISTANT == merged[-1].role:
            turn = ConversationTurn(ASSISTANT, (*merged.pop().parts, *turn.parts))
        merged.append(replace(turn, parts=_joined(turn)))
    return tuple([turn for turn in merged if turn.parts])


def part_key(role: str, part: ContentPart) -> bytes:
    """A digest of role and content without identifiers, which may differ when a part is sent back."""
    content: Json = [role, part.kind, part.text.strip()]
    if part.kind in ("call", "attachment"):
        content = [role, part.kind, part.name, part.value]
    return sha256(canonical(content)).digest()


def _joined(turn: ConversationTurn) -> tuple[ContentPart, ...]:
    parts: list[ContentPart] = []
    for part in turn.parts:
        if part.kind in ("text", "thinking") and not part.text.strip():
            continue
        alike = parts and turn.role == ASSISTANT and parts[-1].kind == part.kind
        if alike and part.kind in ("text", "thinking"):
            part = replace(part, text=parts.pop().text + part.text)
        parts.append(part)
    return tuple(parts)


@dataclass(frozen=True, slots=True)
class ConversationMessage:
    """A message and the interaction where it first appears.

    `at` is the time of the service's answer in ISO 8601 and UTC, None if unknown.
    """

    conversation: int
    interaction: int
    role: str
    parts: tuple[ContentPart, ...]
    at: str | None
    model: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def content(self) -> str:
        """The text, including the text of a tool result."""
        texts = [part.text for part in self.parts if part.kind in ("text", "result")]
        return "\n".join(texts)


def document(message: ConversationMessage) -> dict[str, Json]:
    """A message as JSON; fields without a value are left out, except the timestamp."""
    members: dict[str, Json] = {
        "conversation": message.conversation,
        "role": message.role,
        "content": message.content,
        "timestamp": message.at,
        "interaction": message.interaction,
    }
    thoughts = "\n".join([part.text for part in message.parts if part.kind == "thinking"])
    calls: list[Json] = [_call(part) for part in message.parts if part.kind == "call"]
    attached: list[Json] = [part.value for part in message.parts if part.kind == "attachment"]
    result = next((part for part in message.parts if part.kind == "result"), ContentPart("result"))
    more: dict[str, Json] = {
        "model": message.model,
        "thinking": thoughts,
        "tool_calls": calls,
        "tool_call_id": result.id,
        "name": result.name,
        "failed": result.failed,
        "attachments": attached,
        "notes": list(message.notes),
    }
    return members | {name: value for name, value in more.items() if value}


def _call(part: ContentPart) -> Json:
    members: dict[str, Json] = {"id": part.id} if part.id else {}
    return members | {"name": part.name, "arguments": part.value}
