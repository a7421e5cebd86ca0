"""The messages of a cassette's LLM calls as conversations, each message once, in order.

An agent sends the whole history with each call. Messages of earlier calls are not repeated; a note
says where a call left out, changed or inserted messages. A history that a program appended
(`tapeway.integrations.history`) is a conversation after the other conversations.
"""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tapeway.body_files import read_body
from tapeway.conversations.model import ContentPart, ConversationMessage
from tapeway.conversations.reader import may_hold_a_conversation
from tapeway.conversations.turns import CassetteTurns, ReadCalls, read_calls, turns
from tapeway.core.json_text import Json
from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.interaction import (
    AnyInteraction,
    ForeignInteraction,
    Interaction,
    large_bodies,
)
from tapeway.providers.prices import PriceTable

MIB = 1024 * 1024
MAX_BODY_SIZE = 8 * MIB
"""Large bodies above this are not read."""

MAX_TOTAL_SIZE = 64 * MIB
"""Limit for all large bodies together; parsing JSON takes several times its size in memory."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A call with a conversation that could not be parsed."""

    interaction: int
    reason: str


@dataclass(frozen=True, slots=True)
class Transcript:
    """All messages of a cassette, one conversation after the other, and the calls left out."""

    messages: tuple[ConversationMessage, ...]
    left_out: tuple[LeftOut, ...] = ()


def transcript(interactions: Iterable[AnyInteraction]) -> Transcript:
    """The conversations of these calls in order, followed by the program's appended history."""
    items = list(interactions)
    return _transcript(items, read_calls(items))


async def read_transcript(stored: StoredCassette) -> Transcript:
    """The transcript, computed in another thread; large bodies are read up to the limits above.

    Raises StoreError for a large body that is lost.
    """
    return await asyncio.to_thread(transcript, await _read(stored))


async def read_conversations(
    stored: StoredCassette, prices: PriceTable
) -> tuple[Transcript, CassetteTurns]:
    """Transcript and turns, computed in the same way. Raises StoreError."""
    items = await _read(stored)

    def both() -> tuple[Transcript, CassetteTurns]:
        calls = read_calls(items)
        return _transcript(items, calls), turns(calls, prices)

    return await asyncio.to_thread(both)


def _transcript(items: Iterable[AnyInteraction], calls: ReadCalls) -> Transcript:
    messages = list(calls.threads.messages())
    messages += _history(items, max((message.conversation for message in messages), default=-1) + 1)
    left_out = [LeftOut(index, reason) for index, reason in calls.left_out]
    return Transcript(tuple(messages), tuple(left_out))


async def _read(stored: StoredCassette) -> list[AnyInteraction]:
    """The interactions; possible LLM calls have their large bodies in memory."""
    interactions: list[AnyInteraction] = []
    left = MAX_TOTAL_SIZE
    for interaction in stored.interactions:
        if (
            isinstance(interaction, Interaction)
            and (files := large_bodies(interaction))
            and may_hold_a_conversation(interaction.request)
        ):
            size = sum(file.size for file in files if file.size <= MAX_BODY_SIZE)
            if size <= left:
                left -= size
                interactions.append(await _inlined(interaction))
                continue
        interactions.append(interaction)
    return interactions


async def _inlined(item: Interaction) -> Interaction:
    request, response = item.request, item.response
    if request.file is not None and request.file.size <= MAX_BODY_SIZE:
        request = replace(request, body=await read_body(request.file), file=None)
    if response.file is not None and response.file.size <= MAX_BODY_SIZE:
        response = replace(response, body=await read_body(response.file), file=None)
    return replace(item, request=request, response=response)


def _history(items: Iterable[AnyInteraction], conversation: int) -> Iterator[ConversationMessage]:
    for item in items:
        if isinstance(item, ForeignInteraction):
            yield from _appended_messages(item, conversation)


def _appended_messages(
    item: ForeignInteraction, conversation: int
) -> Iterator[ConversationMessage]:
    """The messages of one append to a history; empty for any other interaction."""
    match item.document:
        case {
            "kind": "memory_write",
            "request": {"name": "append_messages", "args": {"messages": list(messages)}},
        }:
            for message in messages:
                match message:
                    case {"role": str(role), "content": content, "timestamp": (str() | None) as at}:
                        yield ConversationMessage(
                            conversation, item.index, role, (_part(content),), at
                        )


def _part(content: Json) -> ContentPart:
    if isinstance(content, str):
        return ContentPart("text", content)
    return ContentPart("attachment", value=content)
