"""interposition's cassettes in any store of tapeway's, for its own synchronous Broker.

    with TapewayCassetteStore("sqlite:cassettes.db", "smoke", create_if_missing=True) as store:
        broker = ThreadSafeBroker.from_store(store, mode="auto", live_responder=ask)
        for chunk in broker.replay(request): ...

Made for interposition 0.6.0, which is to be installed besides.
"""

import logging
import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tapeway.core.model.interaction import AnyInteraction
from tapeway.core.model.interaction import Interaction as Exchange
from tapeway.core.redaction.known_values import KnownValues
from tapeway.errors import StoreError, TapewayError
from tapeway.formats.errors import FormatFault, pointer_text
from tapeway.formats.native.document import decode, encode
from tapeway.formats.native.secret_scan import SecretScanner
from tapeway.formats.other_tools.http_call import with_match_key
from tapeway.formats.other_tools.interposition import (
    NOTE,
    Chunk,
    InterpositionInteraction,
    from_interposition,
    to_interposition,
)
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
    from interposition.errors import LiveResponderRequiredError
    from interposition.services import LiveResponder
except ImportError as exc:
    raise ImportError(
        "tapeway.integrations.interposition is for interposition 0.6.0: pip install interposition"
    ) from exc

log = logging.getLogger(__name__)


class TapewayCassetteStore:
    """One cassette of a store as interposition's `CassetteStore`.

    `store` is an address as `tapeway serve --store` takes it, or a store nobody else uses. `save`
    adds what the cassette holds that is not stored yet and never removes anything: of several
    threads with one Broker each passes what it has seen. Threads may share it.

    Answers are redacted as everywhere in tapeway. A request that shows a credential is refused with
    CassetteSaveError, since its fingerprint would find nothing any more; `keep_secrets` stores all
    as it is.
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
        self._turn = threading.RLock()
        self._there: tuple[Interaction, ...] | None = None
        self._stored: dict[int, Interaction] = {}

    @property
    def path(self) -> Path:
        """What errors name as the place: the store's address and the cassette."""
        return Path(self._cassette.shown)

    def load(self) -> Cassette:
        """All that is stored, in order. Raises CassetteLoadError."""
        with self._turn:
            try:
                stored = self._cassette.load()
                if stored is None and not self._create_if_missing:
                    raise StoreError("there is no such cassette: give create_if_missing=True")
                items = () if stored is None else stored.interactions
                cassette = Cassette(interactions=tuple(_interactions(items, self.path)))
            except (TapewayError, FormatFault, ValueError, RuntimeError) as exc:
                raise CassetteLoadError(self.path, exc) from exc
            self._there = cassette.interactions
            self._stored = {id(each): each for each in self._there}
            return cassette

    def save(self, cassette: Cassette) -> None:
        """Add what is new, durable on return. Raises CassetteSaveError."""
        with self._turn:
            try:
                self._add(self._new(cassette.interactions))
            except (TapewayError, FormatFault, ValueError, RuntimeError) as exc:
                raise CassetteSaveError(self.path, exc) from exc

    def replace(self, cassette: Cassette) -> None:
        """Put this in the place of all that is stored. Raises CassetteSaveError."""
        with self._turn:
            try:
                self._cassette.save([self._item(each) for each in cassette.interactions])
            except (TapewayError, FormatFault, ValueError, RuntimeError) as exc:
                raise CassetteSaveError(self.path, exc) from exc
            self._there = cassette.interactions
            self._stored = {id(each): each for each in self._there}

    def close(self) -> None:
        """Bring the cassette into its final form and let go of it. Raises CassetteSaveError."""
        with self._turn:
            try:
                self._cassette.close()
            except TapewayError as exc:
                raise CassetteSaveError(self.path, exc) from exc

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _new(self, given: Sequence[Interaction]) -> list[Interaction]:
        new = [each for each in given if id(each) not in self._stored]
        if not new:
            return new
        if self._there is None:
            stored = self._cassette.load()
            items = () if stored is None else stored.interactions
            self._there = tuple(_interactions(items, self.path))
            self._stored = {id(each): each for each in self._there}
        given_ids = {id(each) for each in given}
        # The same recordings, read by somebody else.
        again = Counter([each for each in self._there if id(each) not in given_ids])
        if not again:
            return new
        found: list[Interaction] = []
        for each in new:
            if again[each]:
                again[each] -= 1
                self._stored[id(each)] = each
            else:
                found.append(each)
        return found

    def _add(self, new: Sequence[Interaction]) -> None:
        done = self._cassette.add([self._item(each) for each in new])
        for each, index in zip(new, done, strict=True):
            if isinstance(index, int):
                self._stored[id(each)] = each
        for failed in done:
            if isinstance(failed, TapewayError):
                raise failed

    def _item(self, interaction: Interaction) -> AnyInteraction:
        item = from_interposition(_interposed(interaction))
        if self._known is None:
            return item
        document = encode(item)
        seen = SecretScanner(self._cassette.head().run_id, self._known).interaction(item, document)
        for finding in seen.findings:
            if _asked(finding.place):
                raise StoreError(
                    f"nothing was recorded: the credential '{finding.kind}' stands in "
                    f"{pointer_text(finding.place)}, and a request without it has another fingerprint; "
                    "leave it out of the InteractionRequest, or give keep_secrets=True"
                )
        for finding in seen.left:
            raise StoreError(
                f"nothing was recorded: the credential '{finding.kind}' would still stand in "
                f"{pointer_text(finding.place)}; give keep_secrets=True to store it"
            )
        if seen.document is document:
            return item
        mended = decode(seen.document, item.index)
        return with_match_key(mended) if isinstance(mended, Exchange) else mended


class ThreadSafeBroker(Broker):
    """interposition's Broker for threads to share: none of what they record is lost.

    An answer that could not be saved is in its cassette neither, so that nothing is ever exposed
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

    def _forward_and_record(self, request: InteractionRequest) -> Iterator[ResponseChunk]:
        responder, store = self.live_responder, self.cassette_store
        if responder is None:
            raise LiveResponderRequiredError(self.mode)
        chunks = tuple(responder(request))
        interaction = Interaction(
            request=request, fingerprint=request.fingerprint(), response_chunks=chunks
        )
        with self._recording:
            grown = _grown(self.cassette, interaction)
            if store is not None:
                store.save(grown)
            self._cassette = grown
        yield from chunks


def _grown(cassette: Cassette, interaction: Interaction) -> Cassette:
    """The cassette with one more; what was checked before is not checked again."""
    found = Cassette.model_construct(interactions=(*cassette.interactions, interaction))
    index = dict(cassette._index)
    index.setdefault(interaction.fingerprint, len(cassette.interactions))
    # Where interposition itself puts it.
    object.__setattr__(found, "_index", index)
    return found


def _asked(place: tuple[str | int, ...]) -> bool:
    """Whether the fingerprint covers what stands there."""
    return place[:1] == ("request",) or (
        place[:2] == ("metadata", NOTE) and place[2:3] in (("headers",), ("target",), ("protocol",))
    )


def _interposed(interaction: Interaction) -> InterpositionInteraction:
    request = interaction.request
    return InterpositionInteraction(
        request.protocol,
        request.action,
        request.target,
        request.headers,
        request.body,
        tuple([Chunk(each.data, each.metadata) for each in interaction.response_chunks]),
        interaction.metadata,
    )


def _interactions(items: Iterable[AnyInteraction], path: Path) -> Iterator[Interaction]:
    left_out = 0
    for item in items:
        interposed = to_interposition(item)
        if interposed is None:
            left_out += 1
            continue
        yield Interaction(
            request=InteractionRequest(
                protocol=interposed.protocol,
                action=interposed.action,
                target=interposed.target,
                headers=interposed.headers,
                body=interposed.body,
            ),
            fingerprint=RequestFingerprint(value=interposed.fingerprint),
            response_chunks=tuple(
                [
                    ResponseChunk(data=each.data, sequence=number, metadata=each.metadata)
                    for number, each in enumerate(interposed.chunks)
                ]
            ),
            metadata=interposed.metadata,
        )
    if left_out:
        log.warning(
            "%s: %d recordings are no answers that interposition could replay: left out",
            path,
            left_out,
        )
