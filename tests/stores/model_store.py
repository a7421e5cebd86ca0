"""A shared store of dictionaries: the measure that every other store is compared with.

It keeps what the port promises in the plainest form: one process, no disk, nothing at the same time.
"""

import asyncio
import copy
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count

from tapeway.core.correlation.index import MOST_ALIKE, issued_keys
from tapeway.core.http.routing import check_cassette_name
from tapeway.core.matching.rules import rules_of_meta
from tapeway.core.misses.neighbours import Neighbours, SoughtRequest, weight_of, within_budget
from tapeway.core.model.cassette import (
    CassetteHead,
    CassetteStat,
    Lease,
    LogPage,
    Outline,
    Recording,
    RecordingTitle,
    StoredCassette,
    TakenRecording,
)
from tapeway.core.model.condition import ANY, Condition, Unchanged
from tapeway.core.model.control import STAYED, Control, CursorMove, CursorState
from tapeway.core.model.interaction import (
    AnyInteraction,
    ForeignInteraction,
    Interaction,
    exchange_of,
    large_bodies,
)
from tapeway.core.model.messages import BodyFile
from tapeway.errors import CassetteEdited, Fenced, RecordingEdited, StoreError, closed, out_of_touch
from tapeway.formats.native.document import interaction_digest, numbered
from tapeway.ports import Issuer, MoveDone, StoreFacts
from tapeway.stores.support.columns import (
    columns_of,
    head_text,
    imported_text,
    keys_of,
    recording_text,
)
from tapeway.stores.support.large_bodies import write_temporary
from tests.support.fakes.derived_log import DerivedLog

NEAR_BYTES = 8 * 1024 * 1024

Cursor = tuple[str, int, bytes]


@dataclass
class Held:
    """A cassette."""

    id: int
    head: CassetteHead
    items: dict[int, TakenRecording] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    changes: int = 0
    changed_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def version(self) -> str:
        return f"{self.id}.{self.changes}"

    def in_order(self, indexes: Iterable[int] | None = None) -> list[TakenRecording]:
        chosen = self.items.values() if indexes is None else [self.items[at] for at in indexes]
        return sorted(chosen, key=lambda recording: (recording.place, recording.item.index))

    def exchanges(self) -> Iterator[Interaction]:
        for recording in self.in_order():
            if (exchange := exchange_of(recording.item)) is not None:
                yield exchange

    def keys(self, exchange: Interaction) -> Sequence[bytes]:
        return keys_of(exchange, rules_of_meta(self.head.meta))

    def put(self, taken: TakenRecording, text: bytes) -> None:
        self.items[taken.item.index] = taken
        files = sum([file.size for file in large_bodies(taken.item)])
        self.sizes[taken.item.index] = len(text) + files
        self.changed()

    def drop(self, index: int) -> TakenRecording | None:
        found = self.items.pop(index, None)
        if found is not None:
            del self.sizes[index]
            self.changed()
        return found

    def changed(self) -> None:
        self.changes += 1
        self.changed_at = datetime.now(UTC)


class ModelPlace:
    """What the instances of one store share."""

    def __init__(self) -> None:
        self.cassettes: dict[str, Held] = {}
        self.logs: dict[str, DerivedLog] = {}
        self.turns: dict[Cursor, CursorState] = {}
        self.touched: dict[tuple[str, int], int] = {}
        """The last take that used a recording, by cassette and index."""
        self.leases: dict[tuple[str, bytes], tuple[Lease, ModelStore]] = {}
        self.next: dict[str, int] = {}
        self.control: Control | None = None
        self.members: dict[ModelStore, int] = {}
        """The change that each instance applied last."""
        self.ids, self.fences, self.versions = count(1), count(1), count(1)
        self.released = asyncio.Condition()

    def forget(self, name: str) -> None:
        """Forget cursors and uses of a cassette."""
        self.turns = {at: state for at, state in self.turns.items() if at[0] != name}
        self.touched = {at: take for at, take in self.touched.items() if at[0] != name}

    def reserve(self, name: str, count: int) -> int:
        first = self.next.get(name, 0)
        self.next[name] = first + count
        return first

    def turn(self, cursor: Cursor, state: bytes) -> CursorState:
        self.turns[cursor] = CursorState(state, next(self.versions))
        return self.turns[cursor]

    def touch(self, name: str, take: int, index: int) -> None:
        """Count a recording as used, if it is there."""
        held = self.cassettes.get(name)
        found = None if held is None else held.items.get(index)
        if found is not None and exchange_of(found.item) is not None:
            self.touched[name, index] = max(take, self.touched.get((name, index), take))


class ModelStore:
    """One instance over a place."""

    url = "model:"
    facts = StoreFacts(durability="process", paged=True)
    trouble = None

    def __init__(self, place: ModelPlace) -> None:
        self._place = place
        self._open = False
        self._apply: Callable[[Control], None] = lambda _: None

    @property
    def shared(self) -> "ModelStore":
        return self

    async def check_reads(self) -> None:
        """Nothing keeps a recording from being read."""

    async def check_writes(self, name: str | None = None) -> None:
        """Nothing keeps a recording from being stored."""

    async def open(self) -> None:
        self._open = True

    async def close(self, within_s: float = math.inf) -> None:
        if self._open:
            self._open = False
            self._place.members.pop(self, None)
            leases = self._place.leases
            for held in [held for held, (_, owner) in leases.items() if owner is self]:
                del leases[held]

    # Whole cassettes.

    async def load(self, name: str, *, writable: bool) -> StoredCassette | None:
        if (held := self._of(name)) is None:
            return None
        items = tuple([recording.item for recording in held.in_order()])
        return copy.deepcopy(StoredCassette(held.head, items))

    async def append(self, name: str, head: CassetteHead, recording: Recording) -> None:
        self._of(name)
        text = recording_text(recording)
        self._check_unchanged(name, recording.goes_on)
        await self._use_up(name, recording.lease)
        held, place = self._made(name, head), self._place
        gone = [dropped for dropped in map(held.drop, recording.supersedes) if dropped is not None]
        self._forget_uses(name, recording.supersedes)
        index = recording.interaction.index
        if index in held.items:
            index = place.reserve(name, 1)
        place.next[name] = max(place.next.get(name, 0), index + 1)
        position = min([item.place for item in gone], default=index)
        step = recording.step
        taken = TakenRecording(
            _numbered(recording.interaction, index), step.take if step else 0, position
        )
        held.put(taken, text)
        if step is not None:
            now = place.turns.get((name, step.take, step.key))
            state = step.advance(None if now is None else now.state)
            place.turn((name, step.take, step.key), state)
            place.touch(name, step.take, index)

    def _check_unchanged(self, name: str, before: AnyInteraction | None) -> None:
        if before is None:
            return
        held = self._of(name)
        found = None if held is None else held.items.get(before.index)
        if found is None or interaction_digest(found.item) != interaction_digest(before):
            raise RecordingEdited(
                f"interaction {before.index} of cassette '{name}' is not the same"
            )

    async def extend(self, name: str, head: CassetteHead, items: Sequence[AnyInteraction]) -> None:
        self._of(name)
        texts = [imported_text(item) for item in items]
        held, first = self._made(name, head), self._place.reserve(name, len(items))
        self._put_all(held, items, texts, first)

    async def save(
        self, name: str, cassette: StoredCassette, only: Unchanged | None = None
    ) -> bool:
        if not self._fits(self._of(name), only):
            return False
        texts = [imported_text(interaction) for interaction in cassette.interactions]
        head_text(cassette.head)
        place = self._place
        place.cassettes.pop(name, None)
        place.forget(name)
        self._put_all(self._made(name, cassette.head), cassette.interactions, texts, 0)
        place.next[name] = max(place.next.get(name, 0), len(texts))
        return True

    async def replace_cassette(self, name: str, by: str) -> None:
        self._of(name)
        place = self._place
        if self._of(by) is None or name == by:
            return
        held = place.cassettes[name] = place.cassettes.pop(by)
        held.changed()
        place.forget(name)
        place.forget(by)
        place.next[name] = max(place.next.get(name, 0), place.next.pop(by, 0))

    async def release(self, name: str) -> None:
        self._of(name)

    async def remove(self, name: str, only: Unchanged | None = None) -> bool:
        if not self._fits(self._of(name), only):
            return False
        self._place.forget(name)
        return self._place.cassettes.pop(name, None) is not None

    async def names(self) -> Sequence[str]:
        self._opened()
        return sorted(self._place.cassettes)

    async def stat(self, name: str) -> CassetteStat | None:
        if (held := self._of(name)) is None:
            return None
        at = held.changed_at.isoformat(timespec="microseconds")
        return CassetteStat(sum(held.sizes.values()), at, held.version)

    async def stats(self, names: Sequence[str]) -> Sequence[CassetteStat | None]:
        return [await self.stat(name) for name in names]

    async def keep(self, name: str, pieces: Iterable[bytes]) -> BodyFile:
        self._of(name)
        return (await asyncio.to_thread(write_temporary, pieces))[0]

    async def body(self, name: str, digest: str) -> BodyFile | None:
        held = self._of(name)
        files = [file for recording in _order_of(held) for file in large_bodies(recording.item)]
        return next((file for file in files if file.digest == digest), None)

    async def check(self) -> Sequence[str]:
        self._opened()
        return []

    async def erase(self) -> Sequence[str]:
        self._opened()
        return []

    # Single recordings.

    async def outline(self, name: str) -> Outline | None:
        if (held := self._of(name)) is None:
            return None
        sources = frozenset([(e.request.route, e.request.base) for e in held.exchanges()])
        return Outline(held.head, len(held.items), sources)

    async def documents(self, name: str, indexes: Sequence[int]) -> Sequence[TakenRecording]:
        held = self._of(name)
        return [] if held is None else held.in_order({*indexes} & held.items.keys())

    async def page(self, name: str, *, after: int | None, limit: int) -> Sequence[TakenRecording]:
        held = self._of(name)
        order = _order_of(held)
        if after is None:
            return order[:limit]
        if held is None or after not in held.items:
            raise CassetteEdited(f"interaction {after} of cassette '{name}' is gone: read it again")
        return order[order.index(held.items[after]) + 1 :][:limit]

    async def near(self, name: str, method: str, path: str, limit: int) -> Sequence[TakenRecording]:
        if (held := self._of(name)) is None:
            return []
        rows = {
            e.index: columns_of(e, b"", rules_of_meta(held.head.meta)) for e in held.exchanges()
        }
        newest = sorted([at for at, row in rows.items() if row.weight is not None], reverse=True)
        same = [at for at in newest if (rows[at].method, rows[at].path) == (method, path)]
        others = [at for at in newest if at not in same]
        left, chosen = NEAR_BYTES, list[int]()
        for at in [*same, *others][:limit]:
            if (weight := rows[at].weight or 0) <= left:
                left -= weight
                chosen.append(at)
        return held.in_order(chosen)

    async def neighbours(self, name: str, asked: SoughtRequest) -> Sequence[TakenRecording]:
        if (held := self._of(name)) is None:
            return []
        items = {exchange.index: exchange for exchange in held.exchanges()}
        near = Neighbours(items.values()).near(asked, items.get)
        return held.in_order([recording.index for recording in near])

    async def alike(self, name: str, key: bytes) -> Sequence[TakenRecording]:
        if (held := self._of(name)) is None:
            return []
        found = {
            exchange.index: exchange for exchange in held.exchanges() if key in held.keys(exchange)
        }
        newest = sorted(found, reverse=True)[:MOST_ALIKE]
        weighed = [(at, weight_of(found[at])) for at in newest]
        fitting = within_budget((at, weight) for at, weight in weighed if weight is not None)
        return held.in_order(fitting)

    async def issuers(self, name: str, keys: Sequence[bytes]) -> Mapping[bytes, Issuer]:
        held, found = self._of(name), dict[bytes, Issuer]()
        for recording in sorted(
            held.exchanges() if held is not None else (), key=lambda it: it.index
        ):
            for key in {*keys} & {*issued_keys(recording)}:
                assert held is not None
                found.setdefault(key, Issuer(recording.index, held.items[recording.index].take))
        return found

    async def used(self, name: str, takes: Sequence[int]) -> Collection[int]:
        touched = self._place.touched.items()
        return {index for (of, index), take in touched if of == name and take in takes}

    async def titles(self, name: str, numbers: Sequence[int]) -> Sequence[RecordingTitle]:
        if (held := self._of(name)) is None:
            return []
        return [_title(exchange) for exchange in held.exchanges() if exchange.index in numbers]

    async def reserve(self, name: str) -> int:
        self._of(name)
        return self._place.reserve(name, 1)

    async def edit(
        self, name: str, index: int, changed: AnyInteraction | None, condition: Condition = ANY
    ) -> bool:
        held = self._of(name)
        if held is None or (before := held.items.get(index)) is None:
            return False
        if condition.given:
            condition.check(interaction_digest(before.item))
        text = b"" if changed is None else imported_text(replace(changed, index=index))
        held.drop(index)
        if changed is None or exchange_of(changed) is None:
            self._forget_uses(name, [index])
        if changed is not None:
            held.put(replace(before, item=_numbered(changed, index)), text)
        return True

    async def replace_head(self, name: str, head: CassetteHead) -> None:
        held = self._of(name)
        if held is not None and held.head != head:
            head_text(head)
            held.head = copy.deepcopy(head)
            held.changed()

    # Cursors.

    def _log(self, name: str) -> DerivedLog | None:
        if (held := self._of(name)) is None:
            return None
        log = self._place.logs.setdefault(name, DerivedLog())
        log.follow(held, held.head, held.in_order())
        return log

    async def since(self, name: str, seen: int) -> LogPage | None:
        log = self._log(name)
        return None if log is None else log.page(seen)

    async def cursors(
        self, name: str, take: int, keys: Sequence[bytes]
    ) -> Mapping[bytes, CursorState]:
        self._of(name)
        cursors = self._place.turns
        return {key: cursors[name, take, key] for key in keys if (name, take, key) in cursors}

    def advance(self, move: CursorMove, done: MoveDone) -> None:
        self._make(move)
        asyncio.get_running_loop().call_soon(done, move, None)

    def _make(self, move: CursorMove) -> None:
        log, cursor = self._log(move.name), (move.name, move.take, move.key)
        before = move.before
        if isinstance(before, CursorMove):
            if before.after is None:
                return
            before = before.after
        if move.seen is not None and (log is None or not log.is_as_seen(move.seen)):
            return
        control = self._place.control
        if move.generation not in (None, control and control.generation):
            return
        if move.state is None:
            move.after = STAYED
        elif self._place.turns.get(cursor) == before:
            move.after = self._place.turn(cursor, move.state)
            if move.touched is not None:
                self._place.touch(move.name, move.take, move.touched)

    # Leases and control.

    async def claim(self, name: str, key: bytes, *, wait: bool = False) -> Lease | None:
        self._of(name)
        if (name, key) in self._place.leases:
            async with self._place.released:
                await self._place.released.wait_for(
                    lambda: not wait or (name, key) not in self._place.leases
                )
            return None
        lease = Lease(name, key, next(self._place.fences))
        self._place.leases[name, key] = lease, self
        return lease

    async def release_lease(self, lease: Lease) -> None:
        if self._holds(lease):
            del self._place.leases[lease.name, lease.key]
            async with self._place.released:
                self._place.released.notify_all()

    async def fences(self, name: str) -> frozenset[int]:
        self._of(name)
        held = [lease for lease, _ in self._place.leases.values() if lease.name == name]
        return frozenset([lease.fence for lease in held])

    async def join(self, wanted: Control, apply: Callable[[Control], None]) -> Control:
        place, now = self._place, self._place.control
        if now is None or not place.members.keys() - {self}:
            takes = 1 if now is None else now.takes + 1
            generation = 1 if now is None else now.generation + 1
            now = replace(
                wanted, takes=takes, since=takes, cassette_takes={}, generation=generation
            )
            place.control = now
        self._apply, place.members[self] = apply, now.generation
        return now

    async def steer(self, change: Callable[[Control], Control]) -> Control:
        place, before = self._place, self._place.control
        if before is None:
            raise StoreError("nothing is in force in this store yet: join it first", status=503)
        place.control = replace(change(before), generation=before.generation + 1)
        await self.confirm()
        return place.control

    async def confirm(self) -> None:
        now, members = self._place.control, self._place.members
        if now is not None and members.get(self, now.generation) < now.generation:
            try:
                self._apply(now)
            except Exception as exc:
                raise out_of_touch(self.url) from exc
            members[self] = now.generation

    async def instances(self) -> Sequence[str]:
        return [f"instance {id(member)}" for member in self._place.members]

    # What these have in common.

    def _opened(self) -> None:
        if not self._open:
            raise closed(self.url)

    def _of(self, name: str) -> Held | None:
        self._opened()
        return self._place.cassettes.get(check_cassette_name(name))

    def _fits(self, held: Held | None, only: Unchanged | None) -> bool:
        return only is None or only.version == (None if held is None else held.version)

    def _made(self, name: str, head: CassetteHead) -> Held:
        if (held := self._of(name)) is None:
            head_text(head)
            held = Held(next(self._place.ids), copy.deepcopy(head))
            self._place.cassettes[name] = held
        return held

    def _put_all(
        self, held: Held, items: Sequence[AnyInteraction], texts: Sequence[bytes], first: int
    ) -> None:
        for index, (item, text) in enumerate(zip(items, texts, strict=True), first):
            held.put(TakenRecording(_numbered(item, index), 0, index), text)

    def _forget_uses(self, name: str, gone: Iterable[int]) -> None:
        for index in gone:
            self._place.touched.pop((name, index), None)

    def _holds(self, lease: Lease) -> bool:
        return self._place.leases.get((lease.name, lease.key)) == (lease, self)

    async def _use_up(self, name: str, lease: Lease | None) -> None:
        if lease is not None:
            if not self._holds(lease):
                raise Fenced(f"another instance records the same into cassette '{name}' by now")
            await self.release_lease(lease)


def _order_of(held: Held | None) -> list[TakenRecording]:
    return [] if held is None else held.in_order()


def _title(exchange: Interaction) -> RecordingTitle:
    return RecordingTitle(exchange.index, exchange.request.method, exchange.request.target)


def _numbered(item: AnyInteraction, index: int) -> AnyInteraction:
    item = copy.deepcopy(item)
    if isinstance(item, ForeignInteraction):
        return replace(item, index=index, document=numbered(index, dict(item.document)))
    return replace(item, index=index)
