"""One call to the live service: asked once, taken in whole, durable before it is handed out."""

import asyncio
import logging
from dataclasses import asdict, dataclass

from tapeway.core.credentials import of_response
from tapeway.core.json_text import Json
from tapeway.core.model import Interaction, Recording, Response
from tapeway.core.modes import Outcome, Repeats
from tapeway.core.plan import Answer, Ask
from tapeway.core.readable import readable_response
from tapeway.core.recognition import Recogniser
from tapeway.errors import Draining, TapewayError, describe
from tapeway.ports import CassetteStore, LiveResponder
from tapeway.providers.calls import describe as describe_call
from tapeway.providers.usage import usage
from tapeway.tape import Tape

log = logging.getLogger(__name__)

MIB = 1024 * 1024
BROKEN_OFF = "tapeway is stopping and broke off this live call; ask again when it is back"


@dataclass(frozen=True, slots=True)
class Policy:
    """What the settings say about recording and replaying."""

    repeats: Repeats = "last"
    record_statuses: frozenset[int] = frozenset(range(200, 300))
    max_body: int = 64 * MIB


class LiveCall:
    """A call on behalf of one request, or of all equal requests at the time."""

    def __init__(
        self,
        ask: Ask,
        responder: LiveResponder,
        store: CassetteStore,
        policy: Policy,
        recogniser: Recogniser,
    ) -> None:
        self._ask = ask
        self._responder = responder
        self._store = store
        self._policy = policy
        self._recogniser = recogniser

    async def run(self) -> Answer | TapewayError:
        """The answer, or the error that all who wait for it get. Raises nothing."""
        try:
            response = await self._collect()
            if not self._keeps(response):
                return self._answer("live", response, None)
            recording = await self._record(response)
            return self._answer("recorded", response, recording.interaction.index)
        except TapewayError as exc:
            return exc
        except asyncio.CancelledError:
            return Draining(BROKEN_OFF)
        except Exception as exc:
            log.error("a live call failed: %s", describe(exc))
            return TapewayError("tapeway failed while recording; its log says where")

    async def _collect(self) -> Response:
        async with self._responder.ask(self._ask.request) as live:
            tape = Tape(live.head)
            async for chunk in live.chunks(self._policy.max_body):
                tape.add(chunk)
            return tape.finish(live.elapsed_ms())

    def _keeps(self, response: Response) -> bool:
        rules = self._ask.rules
        return rules.records and (
            not rules.replays or response.status in self._policy.record_statuses
        )

    async def _record(self, response: Response) -> Recording:
        ask = self._ask
        recording = ask.cassette.recording(
            self._interaction(response), ask.key, ask.take, replaces=ask.rules.replaces
        )
        await self._store.append(ask.cassette.name, ask.cassette.head, recording)
        ask.cassette.add(recording, ask.key, ask.take)
        return recording

    def _interaction(self, response: Response) -> Interaction:
        ask = self._ask
        held = readable_response(response, ask.request.method)
        call = describe_call(ask.request.route, ask.redacted)
        metadata: dict[str, Json] = {}
        tokens = None
        if call is not None:
            metadata = {"provider": call.provider, "endpoint": call.endpoint, "model": call.model}
            tokens = usage(call, held)
        redactor = self._recogniser.redactor(
            ask.cassette.head.run_id, ask.request, of_response(response.headers)
        )
        return Interaction(
            index=0,
            request=ask.redacted,
            response=redactor.response(held),
            latency_ms=response.latency_ms,
            usage=None if tokens is None else asdict(tokens),
            metadata=metadata,
        )

    def _answer(self, outcome: Outcome, response: Response, index: int | None) -> Answer:
        return Answer(outcome, self._ask.cassette.name, response, index, self._ask.key)
