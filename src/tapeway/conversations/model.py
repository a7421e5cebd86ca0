"""What is said in a conversation, in no provider's own terms.

A message of a conversation, as it is told.
"""

import hashlib
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal

from tapeway.core.json_text import Json, NotJson, canonical, parse

Kind = Literal["text", "thinking", "call", "result", "attachment"]
ASSISTANT, SYSTEM, TOOL, USER = "assistant", "system", "tool", "user"
INSTRUCTING = frozenset({SYSTEM, "developer"})


@dataclass(frozen=True, slots=True)
class Piece:
    """A text, a thought, a tool's call or result, or a reference to what is no text.

    `value` holds the arguments of a call, and what is known of an attachment.
    """

    kind: Kind
    text: str = ""
    value: Json = None
    id: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class ConversationTurn:
    """What one side says before the other does."""

    role: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: its instructions, the history it carries, and the answer it goes on from, if any.

    `previous` is the identifier of an answer or of a conversation that the service keeps.
    """

    system: tuple[ConversationTurn, ...]
    turns: tuple[ConversationTurn, ...]
    previous: str = ""


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer. `ended` is why it stopped before its end, `error` what went wrong instead of it.

    `created` is the service's own time, as it writes it; `names` are identifiers by which a later
    request may go on from here.
    """

    turn: ConversationTurn
    ended: str = ""
    error: str = ""
    created: Json = None
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())


def text(value: str) -> Piece:
    return Piece("text", value)


def thinking(value: str) -> Piece:
    return Piece("thinking", value)


def call(name: str, arguments: Json, identifier: str = "") -> Piece:
    """A call of a tool; arguments that are written as JSON are read."""
    if isinstance(arguments, str):
        with suppress(NotJson):
            arguments = parse(arguments) if arguments.strip() else {}
    return Piece("call", value=arguments, id=identifier, name=name)


def result(value: str, identifier: str = "", name: str = "") -> Piece:
    return Piece("result", value, id=identifier, name=name)


def attachment(kind: str, **known: Json) -> Piece:
    """What is no text, by what refers to it; nothing that is not known is said."""
    found: dict[str, Json] = {"type": kind}
    return Piece(
        "attachment", value=found | {k: v for k, v in known.items() if v not in ("", None)}
    )


def embedded(kind: str, data: str, media_type: str = "") -> Piece:
    """An attachment that stands in the request itself, by its hash: base64, or a data: URL."""
    if data.startswith("data:"):
        head, _, data = data.removeprefix("data:").partition(",")
        media_type = head.partition(";")[0] or media_type
    try:
        octets = b64decode(data)
    except (NotBase64, ValueError):
        octets = data.encode("utf-8", "replace")
    digest = hashlib.sha256(octets).hexdigest()
    return attachment(kind, media_type=media_type, bytes=len(octets), sha256=digest)


def linked(kind: str, url: str) -> Piece:
    """An attachment by its address, which may hold all of it."""
    return embedded(kind, url) if url.startswith("data:") else attachment(kind, url=url)


def split(
    turns: Iterable[ConversationTurn],
) -> tuple[tuple[ConversationTurn, ...], tuple[ConversationTurn, ...]]:
    """The instructions in front, and the turns behind them."""
    joined = [replace(turn, pieces=_joined(turn)) for turn in turns]
    found = tuple([turn for turn in joined if turn.pieces])
    at = next((n for n, turn in enumerate(found) if turn.role not in INSTRUCTING), len(found))
    return found[:at], found[at:]


def merged(turns: Iterable[ConversationTurn]) -> tuple[ConversationTurn, ...]:
    """The turns, what an assistant says in several together: it may be sent back cut otherwise."""
    found: list[ConversationTurn] = []
    for turn in turns:
        if found and turn.role == ASSISTANT == found[-1].role:
            turn = ConversationTurn(ASSISTANT, (*found.pop().pieces, *turn.pieces))
        found.append(replace(turn, pieces=_joined(turn)))
    return tuple([turn for turn in found if turn.pieces])


def key(role: str, piece: Piece) -> bytes:
    """Equal for what says the same, whatever identifiers it has; thoughts are not sent back alike."""
    said: Json = [role, piece.kind, piece.text.strip()]
    if piece.kind in ("call", "attachment"):
        said = [role, piece.kind, piece.name, piece.value]
    return hashlib.sha256(canonical(said)).digest()


def _joined(turn: ConversationTurn) -> tuple[Piece, ...]:
    found: list[Piece] = []
    for piece in turn.pieces:
        if piece.kind in ("text", "thinking") and not piece.text.strip():
            continue
        alike = found and turn.role == ASSISTANT and found[-1].kind == piece.kind
        if alike and piece.kind in ("text", "thinking"):
            piece = replace(piece, text=found.pop().text + piece.text)
        found.append(piece)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class ConversationMessage:
    """One message and the interaction that said it first.

    `at` is when the service answered that call, in ISO 8601 and UTC, None where nobody knows.
    """

    conversation: int
    interaction: int
    role: str
    pieces: tuple[Piece, ...]
    at: str | None
    model: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def content(self) -> str:
        """All its text."""
        texts = [each.text for each in self.pieces if each.kind in ("text", "result")]
        return "\n".join(texts)


def document(message: ConversationMessage) -> dict[str, Json]:
    """A message in JSON; what it does not have is left out, but for its timestamp."""
    found: dict[str, Json] = {
        "conversation": message.conversation,
        "role": message.role,
        "content": message.content,
        "timestamp": message.at,
        "interaction": message.interaction,
    }
    thoughts = "\n".join([each.text for each in message.pieces if each.kind == "thinking"])
    calls: list[Json] = [_call(each) for each in message.pieces if each.kind == "call"]
    attached: list[Json] = [each.value for each in message.pieces if each.kind == "attachment"]
    result = next((each for each in message.pieces if each.kind == "result"), Piece("result"))
    more: dict[str, Json] = {
        "model": message.model,
        "thinking": thoughts,
        "tool_calls": calls,
        "tool_call_id": result.id,
        "name": result.name,
        "attachments": attached,
        "notes": list(message.notes),
    }
    return found | {name: value for name, value in more.items() if value}


def _call(piece: Piece) -> Json:
    found: dict[str, Json] = {"id": piece.id} if piece.id else {}
    return found | {"name": piece.name, "arguments": piece.value}
