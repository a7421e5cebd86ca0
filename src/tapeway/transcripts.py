"""The conversations of a cassette, large bodies read where that is cheap enough."""

import asyncio
from dataclasses import replace

from tapeway.body_files import whole
from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.interaction import ForeignInteraction, Interaction
from tapeway.core.model.messages import BodyFile, ResponseChunk
from tapeway.providers.conversation import Transcript, transcript
from tapeway.providers.spoken import may_hold_a_conversation

MIB = 1024 * 1024
MOST_OF_ONE = 8 * MIB
MOST = 64 * MIB
"""Of all large bodies together; reading JSON takes several times its size in memory."""


async def read_transcript(stored: StoredCassette) -> Transcript:
    """What was said, made in another thread. Raises StoreError for a large body that is lost."""
    found: list[Interaction | ForeignInteraction] = []
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
