"""interposition's cassettes in any tapeway store, for interposition's own synchronous Broker.

    with TapewayCassetteStore("sqlite:cassettes.db", "smoke", create_if_missing=True) as store:
        broker = ThreadSafeBroker.from_store(store, mode="auto", live_responder=ask)
        for chunk in broker.replay(request): ...

It needs interposition 0.6.0.
"""

import logging
import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from tapeway.core.model.interaction import AnyInteraction
from tapeway.core.model.interaction import Interaction as Exchange
from tapeway.core.redaction.known_values import KnownValues
from tapeway.errors import StoreError, TapewayError
from tapeway.formats.errors import FormatFault, pointer_text
from tapeway.formats.native.document import decode, encode
from tapeway.formats.native.secret_scan import SecretScanner
from tapeway.formats.other_tools.interposition import (
    NOTE,
    Chunk,
    InterpositionInteraction,
    from_interposition,
    to_interposition,
)
from tapeway.formats.other_tools.reading.http_call import with_match_key
from tapeway.integrations.blocking_cassette import BlockingCassette
from tapeway.ports import CassetteStore as Store
from tapeway.settings.options import Settings, process_secrets

try:
    from interposition import (
        Broker,
        BrokerMode,
        Cassette,
        CassetteLoadError,
        CassetteSaveError,
        CassetteStore,
        Interaction,
        InteractionRequest,
        RequestFingerprint,
        ResponseChunk,
    )
    from interposition.errors import InteractionNotFoundError, LiveResponderRequiredError
    from interposition.services import LiveResponder
except ImportError as exc:
    raise ImportError(
        "tapeway.integrations.interposition is for interposition 0.6.0: pip install interposition"
    ) from exc

log = logging.getLogger(__name__)


class TapewayCassetteStore:
    """One cassette of a store as interposition's `CassetteStore`. Threads may share it.

    `store` is an address as `tapeway serve --store` takes it, or a store that nobody else uses.
    `save` adds the interactions that are not stored yet and never removes any, because each of
    several threads with one Broker passes only those it has seen.

    Responses are redacted as everywhere in tapeway. A request that shows a credential is refused
    with CassetteSaveError: redacted, it would have another fingerprint. `keep_secrets` stores
    everything as it is.
    """

    def __init__(
        self,
        store: str | Store,
        cassette: str,
        *,
        create_if_missing: bool = False,
        keep_secrets: bool = False,
    ) -> None:
        self._cassette = BlockingCassette(store, cassette, repeats="first")
        self._create_if_missing = create_if_missing
        self._known = None if keep_secrets else KnownValues(process_secrets(Settings(), os.environ))
        self._lock = threading.RLock()
        self._loaded: tuple[Interaction, ...] | None = None
        self._stored: dict[int, Interaction] = {}

    @property
    def path(self) -> Path:
        """The store's address and the cassette, as errors name them."""
        return Path(self._cassette.shown)

    def load(self) -> Cassette:
        """All that is stored, in order. Raises CassetteLoadError."""
        with self._lock:
            try:
                stored = self._cassette.load()
                if stored is None and not self._create_if_missing:
                    raise StoreError("there is no such cassette: give create_if_missing=True")
                items = () if stored is None else stored.interactions
                cassette = Cassette(interactions=tuple(_interactions(items, self.path)))
            except (TapewayError, FormatFault, ValueError, RuntimeError) as exc:
                raise CassetteLoadError(self.path, exc) from exc
            self._remember(cassette.interactions)
            return cassette

    def save(self, cassette: Cassette) -> None:
        """Add the interactions that are new, durable on return; an empty cassette is kept too.

        Raises CassetteSaveError.
        """
        with self._saving():
            self._add(self._new(cassette.interactions))
            if not cassette.interactions:
                self._cassette.begin()

    def add(self, interaction: Interaction) -> None:
        """Add one interaction, durable on return. Raises CassetteSaveError."""
        with self._saving():
            self._add([interaction])

    def replace(self, cassette: Cassette) -> None:
        """Replace everything that is stored. Raises CassetteSaveError."""
        with self._saving():
            self._cassette.save([self._item(interaction) for interaction in cassette.interactions])
            self._remember(cassette.interactions)

    def close(self) -> None:
        """Write the final form of the cassette and close it. Raises CassetteSaveError."""
        with self._saving():
            self._cassette.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _saving(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except (TapewayError, FormatFault, ValueError, RuntimeError) as exc:
                raise CassetteSaveError(self.path, exc) from exc

    def _remember(self, stored: tuple[Interaction, ...]) -> None:
        self._loaded = stored
        self._stored = {id(interaction): interaction for interaction in stored}

    def _new(self, given: Sequence[Interaction]) -> list[Interaction]:
        new = [interaction for interaction in given if id(interaction) not in self._stored]
        if not new:
            return new
        if self._loaded is None:
            stored = self._cassette.load()
            items = () if stored is None else stored.interactions
            self._remember(tuple(_interactions(items, self.path)))
        given_ids = {id(interaction) for interaction in given}
        # Equal interactions that another thread or process loaded itself are not new.
        repeated = Counter(
            [interaction for interaction in self._loaded or () if id(interaction) not in given_ids]
        )
        if not repeated:
            return new
        interactions: list[Interaction] = []
        for interaction in new:
            if repeated[interaction]:
                repeated[interaction] -= 1
                self._stored[id(interaction)] = interaction
            else:
                interactions.append(interaction)
        return interactions

    def _add(self, new: Sequence[Interaction]) -> None:
        done = self._cassette.add([self._item(interaction) for interaction in new])
        for interaction, index in zip(new, done, strict=True):
            if isinstance(index, int):
                self._stored[id(interaction)] = interaction
        for failed in done:
            if isinstance(failed, TapewayError):
                raise failed

    def _item(self, interaction: Interaction) -> AnyInteraction:
        item = from_interposition(_converted(interaction))
        if self._known is None:
            return item
        document = encode(item)
        seen = SecretScanner(self._cassette.head().run_id, self._known).interaction(item, document)
        for finding in seen.findings:
            if _in_fingerprint(finding.place):
                raise StoreError(
                    f"nothing was recorded: the credential '{finding.kind}' is in "
                    f"{pointer_text(finding.place)}, and a request without it has another fingerprint; "
                    "leave it out of the InteractionRequest, or give keep_secrets=True"
                )
        for finding in seen.left:
            raise StoreError(
                f"nothing was recorded: the credential '{finding.kind}' would still be in "
                f"{pointer_text(finding.place)}; give keep_secrets=True to store it"
            )
        if seen.document is document:
            return item
        redacted = decode(seen.document, item.index)
        return with_match_key(redacted) if isinstance(redacted, Exchange) else redacted


class ThreadSafeBroker(Broker):
    """interposition's Broker for threads to share: no recording is lost.

    A response that could not be saved is not added to the cassette either, so nothing is replayed
    that is not recorded. The cost of a recording grows little with the cassette.
    """

    def __init__(
        self,
        cassette: Cassette,
        mode: BrokerMode = "replay",
        live_responder: LiveResponder | None = None,
        cassette_store: CassetteStore | None = None,
    ) -> None:
        super().__init__(cassette, mode, live_responder, cassette_store)
        self._recording = threading.Lock()
        self._whole = cassette
        self._interactions = [*cassette.interactions]
        self._first = {
            interaction.fingerprint: interaction for interaction in reversed(cassette.interactions)
        }
        self._is_stored = False
        """Whether all interactions but the next one are in the store."""

    @property
    def cassette(self) -> Cassette:
        """The cassette with all that was recorded."""
        with self._recording:
            if len(self._interactions) != len(self._whole.interactions):
                self._whole = Cassette(interactions=tuple(self._interactions))
            return self._whole

    def replay(self, request: InteractionRequest) -> Iterator[ResponseChunk]:
        """The recorded response, or a live one that is recorded, as the mode says.

        Raises InteractionNotFoundError in the mode `replay`.
        """
        if self.mode != "record":
            if (interaction := self._first.get(request.fingerprint())) is not None:
                yield from interaction.response_chunks
                return
            if self.mode == "replay":
                raise InteractionNotFoundError(request)
        yield from self._record(request)

    def _record(self, request: InteractionRequest) -> Iterator[ResponseChunk]:
        responder = self.live_responder
        if responder is None:
            raise LiveResponderRequiredError(self.mode)
        chunks = tuple(responder(request))
        interaction = Interaction(
            request=request, fingerprint=request.fingerprint(), response_chunks=chunks
        )
        with self._recording:
            self._save(interaction)
            self._interactions.append(interaction)
            self._first.setdefault(interaction.fingerprint, interaction)
        yield from chunks

    def _save(self, interaction: Interaction) -> None:
        store = self.cassette_store
        # A cassette is validated as a whole whenever one is made, so a store of ours is given the
        # new interaction alone.
        if isinstance(store, TapewayCassetteStore) and self._is_stored:
            store.add(interaction)
        elif store is not None:
            store.save(Cassette(interactions=(*self._interactions, interaction)))
            self._is_stored = True


def _in_fingerprint(pointer: tuple[str | int, ...]) -> bool:
    """Whether the fingerprint covers this place."""
    return pointer[:1] == ("request",) or (
        pointer[:2] == ("metadata", NOTE)
        and pointer[2:3] in (("headers",), ("target",), ("protocol",))
    )


def _converted(interaction: Interaction) -> InterpositionInteraction:
    request = interaction.request
    return InterpositionInteraction(
        request.protocol,
        request.action,
        request.target,
        request.headers,
        request.body,
        tuple([Chunk(chunk.data, chunk.metadata) for chunk in interaction.response_chunks]),
        interaction.metadata,
    )


def _interactions(items: Iterable[AnyInteraction], path: Path) -> Iterator[Interaction]:
    left_out = 0
    for item in items:
        converted = to_interposition(item)
        if converted is None:
            left_out += 1
            continue
        yield Interaction(
            request=InteractionRequest(
                protocol=converted.protocol,
                action=converted.action,
                target=converted.target,
                headers=converted.headers,
                body=converted.body,
            ),
            fingerprint=RequestFingerprint(value=converted.fingerprint),
            response_chunks=tuple(
                [
                    ResponseChunk(data=chunk.data, sequence=number, metadata=chunk.metadata)
                    for number, chunk in enumerate(converted.chunks)
                ]
            ),
            metadata=converted.metadata,
        )
    if left_out:
        log.warning(
            "%s: left out %d recordings that interposition cannot replay",
            path,
            left_out,
        )
