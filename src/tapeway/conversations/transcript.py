"""The recorded calls of LLMs as conversations: each message once, in order.

An agent sends its whole history with each call. What of it a call before had said is not told
again; what it left out, changed or put in between is told where that came up.

What a program appended to a history of its own, as the conversation it is.

The conversations of a cassette, large bodies read where that is cheap enough.
"""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tapeway.body_files import whole
from tapeway.conversations.model import ConversationMessage, Piece
from tapeway.conversations.reader import Unread, may_hold_a_conversation, recorded, spoken
from tapeway.conversations.threading import Threads
from tapeway.core.json_text import Json
from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction, Interaction
from tapeway.core.model.messages import BodyFile, ResponseChunk

MIB = 1024 * 1024
MOST_OF_ONE = 8 * MIB

MOST = 64 * MIB
"""Of all large bodies together; reading JSON takes several times its size in memory."""


def kept(item: ForeignInteraction, conversation: int) -> Iterator[ConversationMessage]:
    """The messages of one append; none of any other interaction."""
    match item.document:
        case {
            "kind": "memory_write",
            "request": {"name": "append_messages", "args": {"messages": list(messages)}},
        }:
            for each in messages:
                match each:
                    case {"role": str(role), "content": content, "timestamp": (str() | None) as at}:
                        yield ConversationMessage(
                            conversation, item.index, role, (_piece(content),), at
                        )


def _piece(content: Json) -> Piece:
    if isinstance(content, str):
        return Piece("text", content)
    return Piece("attachment", value=content)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A call that holds a conversation and could not be read."""

    interaction: int
    reason: str


@dataclass(frozen=True, slots=True)
class Transcript:
    """All messages of a cassette, one conversation after the other, and what could not be read."""

    messages: tuple[ConversationMessage, ...]
    left_out: tuple[LeftOut, ...] = ()


def transcript(interactions: Iterable[AnyInteraction]) -> Transcript:
    """The conversations of these calls in the order they come in, behind them an own history."""
    items = list(interactions)
    threads = Threads()
    left_out: list[LeftOut] = []
    for each in items:
        try:
            call = recorded(each) if isinstance(each, ForeignInteraction) else spoken(each)
        except Unread as exc:
            left_out.append(LeftOut(each.index, str(exc)))
            continue
        if call is not None:
            threads.add(call)
    said = list(threads.messages())
    said += _history(items, max((each.conversation for each in said), default=-1) + 1)
    return Transcript(tuple(said), tuple(left_out))


def _history(items: Iterable[AnyInteraction], conversation: int) -> Iterator[ConversationMessage]:
    for each in items:
        if isinstance(each, ForeignInteraction):
            yield from kept(each, conversation)


async def read_transcript(stored: StoredCassette) -> Transcript:
    """What was said, made in another thread. Raises StoreError for a large body that is lost."""
    found: list[AnyInteraction] = []
    left = MOST
    for each in stored.interactions:
        if isinstance(each, Interaction) and may_hold_a_conversation(each.request):
            size = sum(file.size for file in _files(each) if file.size <= MOST_OF_ONE)
            if size <= left:
                left -= size
                found.append(await _inlined(each))
                continue
        found.append(each)
    return await asyncio.to_thread(transcript, found)


async def _inlined(item: Interaction) -> Interaction:
    request, response = item.request, item.response
    if request.file is not None and request.file.size <= MOST_OF_ONE:
        request = replace(request, body=await whole(request.file), file=None)
    if response.file is not None and response.file.size <= MOST_OF_ONE:
        response = replace(response, chunks=(ResponseChunk(await whole(response.file)),), file=None)
    return replace(item, request=request, response=response)


def _files(item: Interaction) -> list[BodyFile]:
    return [file for file in (item.request.file, item.response.file) if file is not None]
