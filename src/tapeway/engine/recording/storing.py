"""Makes an answer durable: decodes, redacts and stores the answer, also in place of a recording."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

from tapeway.body_files import with_body_in_memory
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.cassette.plan import LiveCall
from tapeway.core.cassette.rerecording import Replacement, is_unchanged
from tapeway.core.http.content_codings import content_coding, keeps_coding, readable_response
from tapeway.core.http.volatile_headers import minimal
from tapeway.core.json_text import Json
from tapeway.core.matching.body_digest import is_parsed
from tapeway.core.matching.key import request_key
from tapeway.core.matching.request_redaction import RequestRedaction, with_answers_fields
from tapeway.core.model.cassette import NOT_READ, LeakCheck, ReadBodies, Recording
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import CUT, Failure, Request, Response
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.redactor import Redactor
from tapeway.core.streams.documents import json_value
from tapeway.core.streams.open_streams import requests_by_event
from tapeway.engine.cassettes.source import Source
from tapeway.engine.hooks import NO_HOOKS, Hooks
from tapeway.engine.large_bodies import (
    LargeBodyStorage,
    has_large_body,
    taught_by_large_answer,
    warn_stored_plain,
)
from tapeway.engine.recording.selection import Policy
from tapeway.errors import RecordingEdited
from tapeway.ports import CassetteStore, LiveTurn
from tapeway.providers.api_call import ApiCall
from tapeway.providers.usage import token_usage

log = logging.getLogger(__name__)

MANY_REPEATS = 1000
"""The log tells of a request that was asked so often for the same answer."""
_READ_AT_ONCE = 128 * 1024
"""Larger answers are decoded and redacted in a thread."""

Replacing = Callable[[LiveCall, Interaction], AbstractAsyncContextManager[Replacement] | None]
"""Holds what a new answer replaces while that answer is made durable; None where it is nothing."""


@dataclass(frozen=True, slots=True)
class Storing:
    """What makes the answers of all calls durable."""

    store: CassetteStore
    policy: Policy
    redaction: RequestRedaction
    replacing: Replacing
    source: Source
    hooks: Hooks = NO_HOOKS


class AnswerStorage:
    """Makes the answer to one call durable, at once or part by part."""

    def __init__(
        self, storing: Storing, live_call: LiveCall, turn: LiveTurn | None, *, asks_much: bool
    ) -> None:
        self.live_call = live_call
        self.described: ApiCall | None = None
        """The call to a provider's API, if the request is one."""
        # In the order of requests, not of answers.
        self._index = live_call.reserved
        if self._index is None and live_call.policy.records:
            self._index = live_call.cassette.reserve()
        self._index_is_used = False
        self.part: Interaction | None = None
        """The recording of a session or a turn so far."""
        self.counted: Sequence[tuple[float, int]] | None = None
        """The number of requests of the route by time, where the answer depends on them."""
        self._storing = storing
        self._source = storing.source
        self._turn = turn
        self._asks_much = asks_much
        self._read = NOT_READ

    def announce(self) -> int | None:
        """The index of the recording, which the client is told before anything is stored."""
        self._index_is_used = self._index is not None
        return self._index

    def give_back_index(self) -> None:
        """Let another recording have the index, unless this one was announced or stored."""
        if self._index is not None and not self._index_is_used:
            self.live_call.cassette.give_back(self._index)

    def without_lease(self) -> None:
        """Say that nobody else waits for this recording."""
        self.live_call = self.live_call._replace(lease=None)

    async def record(
        self, response: Response, failure: Failure | None = None
    ) -> Interaction | None:
        """Make an answer durable, redacted; returns its recording, or None where a hook leaves it out.

        Raises StoreError, HookFailed.
        """
        live_call, salt = self.live_call, self.live_call.cassette.head.run_id
        issued = self._storing.redaction.issued(response.head)
        redactor = self._storing.redaction.redactor_of(salt, (*live_call.secrets, *issued))
        taught = await self._taught_by_file(response, redactor)
        redactor = redactor.learning(taught)
        guard = self._storing.redaction.guard_of(salt, live_call.secrets)
        interaction = await self._to_interaction(response, failure, redactor, taught)
        hooked = await self._storing.hooks.recorded(interaction)
        if hooked is None:
            return None
        if hooked.request != interaction.request:
            key = request_key(hooked.request, self.live_call.cassette.rules)
            self.live_call = self.live_call._replace(redacted=hooked.request, key=key)
        interaction = hooked
        # The answer may have taught a secret that the request shows.
        live_call = self.live_call
        if self.counted is not None:
            interaction = await _with_requests(interaction, self.counted)
        if has_large_body(interaction):
            # With what the answer has taught, a body of the request may be another one.
            redactor = self._storing.redaction.redactor_of(
                salt, (*live_call.secrets, *issued, *taught)
            )
            large_bodies = LargeBodyStorage(
                self._storing.store,
                live_call.cassette.name,
                redactor,
                guard,
                self._storing.policy.max_body,
            )
            interaction = await large_bodies.keep(live_call.request, interaction)
            live_call = self._with_stored_body(interaction.request)
        if self.part is not None:
            async with self._source.going_on(live_call, self.part.index):
                return await self._append(interaction, Replacement(live_call.cassette), guard.check)
        if not live_call.policy.replaces:
            if (repeated := await self._repeat(interaction, guard.check)) is not None:
                return repeated
            return await self._append(interaction, Replacement(live_call.cassette), guard.check)
        replacing = self._storing.replacing(live_call, interaction)
        if replacing is None:
            return await self._append(
                interaction, Replacement(live_call.cassette, is_new=True), guard.check
            )
        async with replacing as replacement:
            if replacement.unchanged is not None:
                return replacement.unchanged
            return await self._append(interaction, replacement, guard.check)

    async def _repeat(self, interaction: Interaction, check: LeakCheck) -> Interaction | None:
        """Count an answer that equals the recording before it there; None for any other answer.

        A poll or a health check that is asked again and again takes a few bytes each time.
        """
        live_call, cassette = self.live_call, self.live_call.cassette
        if self._turn is not None or interaction.response.verdict == "open":
            return None
        find = partial(_unchanged_before, cassette, interaction, live_call.key)
        if (before := await self._source.reading(cassette, find)) is None:
            return None
        try:
            async with self._source.going_on(live_call, before.index):
                if (before := await self._source.reading(cassette, find)) is None:
                    return None
                kept = await self._append(interaction, Replacement(cassette), check, before)
        except RecordingEdited:
            return None
        if kept.again == MANY_REPEATS:
            log.warning(
                "cassette '%s': %s %s got the same answer %d times; a rule reuse = [\"%s %s\"] "
                "answers it from the recording",
                cassette.name,
                kept.request.method,
                kept.request.target,
                kept.again,
                kept.request.method,
                kept.request.target.partition("?")[0],
            )
        return kept

    async def _append(
        self,
        interaction: Interaction,
        replacement: Replacement,
        check: LeakCheck,
        repeats: Interaction | None = None,
    ) -> Interaction:
        """Store a recording; one that `repeats` another is counted there."""
        live_call, cassette, part = self.live_call, replacement.cassette, self.part
        announced, self._index_is_used = self._index_is_used, True
        if repeats is not None:
            # In `stream` the client has the new index already.
            index = self._index if announced and self._index is not None else repeats.index
            self._index_is_used = announced
            again = replace(repeats, index=index, again=repeats.again + 1)
            recording = Recording(again, (repeats.index,))
        elif part is None:
            make = partial(
                cassette.make_recording,
                interaction,
                live_call.key,
                live_call.take,
                replaces=live_call.policy.replaces and not replacement.is_new,
                index=self._index,
                instead=replacement.instead,
            )
            recording = await self._source.reading(cassette, make)
        else:
            # It takes the place of the part that was stored before.
            self._index = await self._source.reserve(live_call)
            recording = Recording(replace(interaction, index=self._index), (part.index,))
        interaction, step = cast(Interaction, recording.interaction), None
        goes_on = part is not None
        if live_call.shared:
            step = cassette.cursor_step(
                interaction,
                live_call.key,
                live_call.take,
                live_call.variant,
                live_call.mark,
                goes_on=goes_on,
            )
        # Read bodies may be many times as large as the text of a recording that waits.
        read, self._read = self._read, NOT_READ
        checked = Recording(
            interaction,
            recording.supersedes,
            check,
            live_call.lease,
            step,
            read,
            goes_on=repeats or part,
        )
        await self._storing.store.append(cassette.name, cassette.head, checked)
        self._source.appended(live_call, cassette, interaction.index)
        cassette.add(
            recording,
            live_call.key,
            live_call.take,
            live_call.variant,
            live_call.mark,
            goes_on=goes_on,
        )
        return interaction

    async def _taught_by_file(self, response: Response, redactor: Redactor) -> list[Secret]:
        """What a large body of the answer teaches that is not read as a whole. Raises StoreError."""
        if response.file is None or is_parsed(response.headers, response.file.size):
            return []
        method, limit = self.live_call.request.method, self._storing.policy.max_body
        return await taught_by_large_answer(response, method, redactor, limit)

    def _with_stored_body(self, stored: Request) -> LiveCall:
        """The live call with the key of the request as it is stored, if its body lies in a file."""
        if stored.file is not None:
            key = request_key(stored, self.live_call.cassette.rules)
            self.live_call = self.live_call._replace(redacted=stored, key=key)
        return self.live_call

    async def _to_interaction(
        self,
        response: Response,
        failure: Failure | None,
        redactor: Redactor,
        found: Sequence[Secret],
    ) -> Interaction:
        """The exchange decoded and redacted: a text as a whole, even where it lies in a file."""
        small = response.size <= _READ_AT_ONCE
        if small and not self._asks_much:
            return self._redacted_interaction(response, failure, redactor, found)
        if response.file is not None and is_parsed(response.headers, response.file.size):
            text = await with_body_in_memory(response)
            read = await asyncio.to_thread(
                self._redacted_interaction, text, failure, redactor, found
            )
            if not content_coding(read.response.headers):
                return read
            if read.response.body is text.body:
                coded = replace(read.response, body=b"", file=response.file)
                return replace(read, response=coded)
        return await asyncio.to_thread(
            self._redacted_interaction, response, failure, redactor, found
        )

    def _redacted_interaction(
        self,
        response: Response,
        failure: Failure | None,
        redactor: Redactor,
        found: Sequence[Secret],
    ) -> Interaction:
        """`found` is what a body in a file teaches."""
        live_call, call = self.live_call, self.described
        held = readable_response(response, live_call.request.method, cut=response.verdict in CUT)
        stored, taught = redactor.response_and_secrets(held)
        taught = [*found, *taught]
        if held is not response and keeps_coding(live_call.request.headers, response.head):
            stored = self._still_coded(response, held, stored, redactor)
        elif content_coding(held.headers) and not content_coding(stored.headers):
            warn_stored_plain(live_call.cassette.name, live_call.redacted, held.headers)
        salt, rules = live_call.cassette.head.run_id, live_call.cassette.rules
        self._storing.redaction.learn(salt, (*live_call.secrets, *taught))
        if self._storing.policy.minimal_headers:
            head = replace(stored.head, headers=minimal(stored.headers))
            stored = replace(stored, head=head)
        value = json_value(held)
        self._read = ReadBodies(live_call.read, value if stored.body is held.body else None)
        metadata: dict[str, Json] = {}
        tokens = None
        if call is not None:
            metadata = {"provider": call.provider, "endpoint": call.endpoint, "model": call.model}
            tokens = token_usage(call, held, value)
        asked = with_answers_fields(
            live_call.redacted, live_call.request.headers, response.headers, redactor
        )
        again = self._storing.redaction.redact_again(salt, asked, taught)
        if again is not asked:
            asked = again
            self.live_call = live_call._replace(
                redacted=asked, key=request_key(asked, rules), read=None
            )
            self._read = ReadBodies(None, self._read.response)
        if self._turn is not None:
            metadata |= self._turn.metadata
        return Interaction(
            index=self._index or 0,
            request=asked,
            response=stored,
            latency_ms=response.latency_ms,
            usage=None if tokens is None else tokens.fields(),
            metadata=metadata,
            failure=failure,
        )

    def _still_coded(
        self, response: Response, held: Response, stored: Response, redactor: Redactor
    ) -> Response:
        """A coded response for storing: unchanged bytes, unless they hold a secret."""
        if stored.body != held.body:
            warn_stored_plain(
                self.live_call.cassette.name, self.live_call.redacted, response.headers
            )
            return stored
        return replace(response, head=redactor.response(Response(response.head)).head)


async def _with_requests(
    interaction: Interaction, counted: Sequence[tuple[float, int]]
) -> Interaction:
    """The recording of an event stream with how many requests came before each of its events."""
    response = interaction.response
    whole = response if response.file is None else await with_body_in_memory(response)
    requests = requests_by_event(whole, counted)
    if response.verdict != "open" and requests[-1] == requests[0]:
        # The stream ended by itself, and no request came meanwhile.
        return interaction
    return replace(interaction, response=replace(response, after_requests=requests))


def _unchanged_before(
    cassette: CassetteIndex, interaction: Interaction, key: bytes
) -> Interaction | None:
    """The last recording of the request by the caller, where its answer equals the new answer."""
    before = cassette.before(interaction, key)
    return before if before is not None and is_unchanged(before, interaction) else None
