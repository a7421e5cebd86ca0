"""Random scripts of calls: every store answers them as the store of dictionaries does.

Recordings are told apart by their bodies, and an index is named by the position that the recording
has in its cassette: indexes may have gaps, which differ from store to store.
"""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tapeway.core.correlation.index import alike_key, issued_key
from tapeway.core.json_text import Json
from tapeway.core.matching import rules
from tapeway.core.matching.rules import NO_RULES, Rules
from tapeway.core.misses.neighbours import sought
from tapeway.core.model.cassette import Lease, Recording, StoredCassette, TakenRecording
from tapeway.core.model.condition import Condition, Unchanged
from tapeway.core.model.control import (
    Control,
    CursorMove,
    CursorState,
    Mode,
    SeenCassette,
    with_mode,
    with_take,
)
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction, Interaction
from tapeway.errors import TapewayError
from tapeway.formats.native.document import interaction_digest
from tapeway.ports import CassetteStore, SharedStore
from tests.stores.contract.kinds import KINDS, OUTSIDE, Kind
from tests.stores.large_bodies import contents, kept, large
from tests.stores.model_store import ModelPlace, ModelStore
from tests.stores.recordings import HEAD, recording
from tests.stores.shared_instances import (
    WANTED,
    advanced,
    cursors_of,
    key,
    next_state,
    other_answer,
    recordings_under,
    seen_of,
    turn,
    with_step,
)
from tests.support.fakes.broker import until
from tests.support.thoroughness import runs_everything

SCRIPTS = 1000 if runs_everything() else 8
STEPS = 40
SEED = int.from_bytes(os.urandom(4)) if runs_everything() else 7

_RULES = Rules(ignore=("query.n",), rewrite=(("/v1/0", "/v1/1"),))
HEADS = [
    HEAD,
    replace(HEAD, run_id="two"),
    replace(HEAD, meta=rules.meta_with_rules(HEAD.meta, _RULES)),
]
NUMBERS = 3
MIB = 1024 * 1024


@dataclass
class Side:
    """Instances of one store, and what a script remembers of it."""

    stores: Sequence[SharedStore]
    leases: list[tuple[int, Lease]] = field(default_factory=list)
    seen: list[tuple[str, int, int, CursorState | None]] = field(default_factory=list)
    versions: dict[str, str | None] = field(default_factory=dict)
    marks: dict[str, SeenCassette] = field(default_factory=dict)


@dataclass
class Script:
    """One script's source of chance: each side of a comparison gets an equal one."""

    seed: str
    chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)

    def __call__(self, *choices: object) -> object:
        return self.chance.choice(choices)

    def below(self, limit: int) -> int:
        return self.chance.randrange(limit)

    def happens(self, share: float) -> bool:
        return self.chance.random() < share


def label(item: AnyInteraction) -> str:
    if isinstance(item, ForeignInteraction):
        return f"foreign {item.document['response']}"
    if item.response.file is not None:
        return f"large {item.response.file.digest[:8]}"
    return item.response.body[:16].decode()


class Calls:
    """One call on one side: its result in a form that is the same for all stores.

    Each method draws the same numbers whatever its store answers, so that the sides stay in step.
    """

    def __init__(self, side: Side, script: Script, prefix: str, number: int) -> None:
        self.side, self.script = side, script
        self.names = (f"{prefix}-x", f"{prefix}-y")
        self.n, self.m = script.chance.sample(self.names, 2)
        self.store = script.chance.choice([0, 1])
        self.s = side.stores[self.store]
        self.which, self.at, self.other = script.below(NUMBERS), script.below(9), script.below(9)
        self.take = 1 + script.below(3)
        self.head = HEADS[script.below(len(HEADS))]
        self.stepped, self.sometimes = script.happens(0.5), script.happens(0.3)
        self.answer = b"%d of %d" % (self.which, number)
        self.number = number

    async def _order(self) -> list[TakenRecording]:
        found: list[TakenRecording] = []
        while page := await self.s.page(
            self.n, after=found[-1].item.index if found else None, limit=3
        ):
            found += page
        return found

    async def _nth(self, at: int) -> int:
        """The index of a recording that is there, 0 where there is none."""
        order = await self._order()
        return order[at % len(order)].item.index if order else 0

    def _made(self, index: int, *supersedes: int) -> Recording:
        made = other_answer(self.which, index, *supersedes, body=self.answer)
        return with_step(made, self.take) if self.stepped else made

    def _labels(self, found: Iterable[TakenRecording]) -> list[tuple[str, int]]:
        return [(label(item.item), item.take) for item in found]

    async def _labels_of(self, indexes: Iterable[int]) -> list[str]:
        by_index = {item.item.index: label(item.item) for item in await self._order()}
        return [by_index.get(index, "?") for index in indexes]

    # Changes.

    async def append(self) -> None:
        gone = [await self._nth(self.at)] if self.sometimes else []
        await self.s.append(self.n, self.head, self._made(await self.s.reserve(self.n), *gone))

    async def append_turn(self) -> None:
        index = await self.s.reserve(self.n)
        issued = f"call_h5Xw0Vb{self.which}", f"call_Qp7Lm2K{self.other}"
        made = turn(index, f"call_Zz9Yy8{self.at}", f"in {self.which}", *issued)
        await self.s.append(self.n, self.head, with_step(made, self.take))

    async def append_under_a_taken_index(self) -> object:
        await self.s.append(self.n, self.head, self._made(await self._nth(self.other)))
        return None

    async def append_heavy(self) -> object:
        mib = self.script.below(4) * 2 + 1
        made = self._made(await self.s.reserve(self.n))
        response = replace(made.exchange.response, body=self.answer.ljust(mib * MIB))
        await self.s.append(
            self.n, self.head, replace(made, interaction=replace(made.exchange, response=response))
        )
        return None

    async def append_large(self) -> object:
        file = await kept(self.s, [self.answer * 10], self.n)
        made = self._made(await self.s.reserve(self.n))
        response = replace(made.exchange.response, body=b"", file=file)
        await self.s.append(
            self.n, self.head, replace(made, interaction=replace(made.exchange, response=response))
        )
        return None

    async def extend(self) -> None:
        foreign: dict[str, Json] = {"index": 9, "kind": "tool", "request": {}}
        last = ForeignInteraction(9, {**foreign, "response": self.number})
        writer = self.s
        assert writer is not None
        await writer.extend(self.n, self.head, [self._made(0).interaction, last])

    async def edit(self) -> object:
        index = await self._nth(self.at)
        changed = None if self.stepped else replace(self._made(0).exchange, index=index)
        return await self.s.edit(self.n, index, changed)

    async def edit_on_condition(self) -> object:
        order = await self._order()
        held = order[self.at % len(order)].item if order else recording(0).interaction
        digest = interaction_digest(held) if self.sometimes else "another"
        return await self.s.edit(self.n, held.index, None, Condition(match=frozenset({digest})))

    async def save(self) -> None:
        again = [item.item for item in (await self._order())[: self.at]]
        items = (*again, self._made(0).interaction)
        await self.s.save(self.n, StoredCassette(self.head, items))

    async def note_mark(self) -> object:
        stat = await self.s.stat(self.n)
        self.side.versions[self.n] = None if stat is None else stat.version
        if stat is not None:
            self.side.marks[self.n] = await seen_of(self.s, self.which, name=self.n)
        return stat is not None

    async def replace_marked(self) -> object:
        cassette = StoredCassette(self.head, (self._made(0).interaction,))
        only = Unchanged(self.side.versions.get(self.n))
        if self.stepped:
            return await self.s.remove(self.n, only)
        return await self.s.save(self.n, cassette, only)

    async def remove(self) -> object:
        return await self.s.remove(self.n)

    async def rename(self) -> None:
        replacer = self.s
        assert replacer is not None
        await replacer.replace_cassette(self.n, self.n if self.sometimes else self.m)

    async def replace_head(self) -> None:
        await self.s.replace_head(self.n, self.head)

    async def release(self) -> None:
        await self.s.release(self.n)

    # Queries.

    async def names_there(self) -> object:
        return [name for name in await self.s.names() if name in self.names]

    async def load(self) -> object:
        found = await self.s.load(self.n, writable=self.stepped)
        return found and (found.head, [label(interaction) for interaction in found.interactions])

    async def outline(self) -> object:
        found = await self.s.outline(self.n)
        return found and (found.head, found.count, sorted(found.sources))

    async def page(self) -> object:
        return self._labels(await self._order())

    async def page_after_none(self) -> object:
        return await self.s.page(self.n, after=10**6, limit=2)

    async def find(self) -> object:
        return self._labels(
            await recordings_under(self.s, self.n, [key(self.which), key(self.at % NUMBERS)])
        )

    async def cursors(self) -> object:
        found = await self.s.cursors(self.n, self.take, [key(self.which)])
        return [cursor.state for cursor in found.values()]

    async def documents(self) -> object:
        at = await self._nth(self.at)
        return self._labels(await self.s.documents(self.n, [at, await self._nth(0), at]))

    async def near(self) -> object:
        near = await self.s.near(self.n, "POST", f"/v1/{self.which}", 1 + self.at)
        return self._labels(near)

    async def near_others(self) -> object:
        return self._labels(await self.s.near(self.n, "DELETE", "/none", 1 + self.at))

    async def alike(self) -> object:
        request = turn(0, "call_1", f"in {self.which}").exchange.request
        key = alike_key(request, NO_RULES)
        return key and self._labels(await self.s.alike(self.n, key))

    async def issuers(self) -> object:
        names = [f"call_h5Xw0Vb{self.which}", f"call_Qp7Lm2K{self.other}", "none"]
        found = await self.s.issuers(self.n, [issued_key(name) for name in names])
        issuers = [found.get(issued_key(name)) for name in names]
        indexes = await self._labels_of([issuer.index for issuer in issuers if issuer is not None])
        return indexes, [issuer and issuer.take for issuer in issuers]

    async def neighbours(self) -> object:
        target = f"/v1/{self.script(self.which, self.at, 'none')}?page={self.other}"
        body = b'{"prompt":"hello %d"}' % self.at
        request = replace(recording(0).exchange.request, method="POST", target=target, body=body)
        return self._labels(await self.s.neighbours(self.n, sought(request, f"/v1/{self.at}")))

    async def used(self) -> object:
        used = await self.s.used(self.n, [self.take, 1])
        return await self._labels_of(sorted(used))

    async def titles(self) -> object:
        order = await self._order()
        found = await self.s.titles(self.n, [item.item.index for item in order[: 1 + self.at]])
        labels = await self._labels_of([item.index for item in found])
        return labels, [(item.method, item.target) for item in found]

    async def body(self) -> object:
        finder = self.s
        assert finder is not None
        files = [
            item.item.response.file.digest
            for item in await self._order()
            if isinstance(item.item, Interaction) and item.item.response.file
        ]
        found = await finder.body(self.n, files[0] if files else "0" * 64)
        return found and found.digest

    # Cursors.

    async def turns(self) -> object:
        keys = [key(number) for number in range(NUMBERS)]
        found = await cursors_of(self.s, self.n, self.take, keys)
        return sorted((keys.index(name), turn.state) for name, turn in found.items())

    async def note_turn(self) -> object:
        """Remember the state of a cursor for a later step."""
        cursor = key(self.which)
        found = (await cursors_of(self.s, self.n, self.take, [cursor])).get(cursor)
        self.side.seen.append((self.n, self.take, self.which, found))
        return found and found.state

    async def advance_as_noted(self) -> object:
        """A step from a state that was seen earlier, perhaps before a save or a removal."""
        if not self.side.seen:
            return None
        self.n, take, which, before = self.side.seen[self.at % len(self.side.seen)]
        state = next_state(before.state if before else None)
        index = await self._nth(self.at)
        made = await advanced(self.s, self.n, take, key(which), before, state, index)
        return made and made.state

    async def advance(self) -> object:
        cursor, index = key(self.which), await self._nth(self.at)
        before = (await cursors_of(self.s, self.n, self.take, [cursor])).get(cursor)
        state = next_state(before.state if before else None)
        made = await advanced(self.s, self.n, self.take, cursor, before, state, index)
        return made and made.state

    async def advance_marked(self) -> object:
        cursor, index = key(self.which), await self._nth(self.at)
        seen = self.side.marks.get(self.n)
        before = (await cursors_of(self.s, self.n, self.take, [cursor])).get(cursor)
        state = next_state(before.state if before else None)
        made = await advanced(self.s, self.n, self.take, cursor, before, state, index, seen)
        return made and made.state

    async def move(self) -> object:
        """Two steps, the second from where the first comes to."""
        mover, cursor = self.s, key(self.which)
        assert mover is not None
        index, before = await self._nth(self.at), None
        if not self.sometimes:
            before = (await cursors_of(self.s, self.n, self.take, [cursor])).get(cursor)
        await self.s.outline(self.n)
        state = next_state(before.state if before else None)
        first = CursorMove(self.n, self.take, cursor, before, state, index, None)
        second = CursorMove(self.n, self.take, cursor, first, next_state(state), None, None)
        told: list[BaseException | None] = []
        for move in (first, second):
            mover.advance(move, lambda _, refused: told.append(refused))
        await until(lambda: len(told) == 2)
        return told, [move.after and move.after.state for move in (first, second)]

    # Leases and control.

    async def claim(self) -> object:
        lease = await self.s.claim(self.n, key(self.which))
        if lease is not None:
            self.side.leases.append((self.store, lease))
        return lease is not None, len(await self.s.fences(self.n))

    async def give_back(self) -> object:
        if self.side.leases:
            owner, lease = self.side.leases[self.at % len(self.side.leases)]
            await self.side.stores[owner].release_lease(lease)
        return len(await self.s.fences(self.n))

    async def append_under_a_lease(self) -> object:
        """Perhaps one that was given back or used already."""
        if not self.side.leases:
            return None
        owner, lease = self.side.leases[self.at % len(self.side.leases)]
        store = self.side.stores[owner if not self.sometimes else 1 - owner]
        made = replace(self._made(await store.reserve(lease.name)), lease=lease)
        await store.append(lease.name, self.head, made)
        return len(await store.fences(lease.name))

    async def steer(self) -> object:
        """Of another cassette: a new take lets the cursors of earlier ones go, sooner or later."""
        mode: Mode = "replay" if self.sometimes else "record"

        def change(now: Control) -> Control:
            return with_mode(now, mode, "steered") if self.stepped else with_take(now, "steered")

        control = await self.s.steer(change)
        return control.takes, control.mode_of("steered")


OFTEN = ["append", "append_turn", "advance", "note_turn", "advance_as_noted", "note_mark"]
CALLS = [name for name in vars(Calls) if not name.startswith("_")]
CHOICES = [*CALLS, *OFTEN * 3]


async def told(call: Callable[[], Awaitable[object]]) -> object:
    """What a call answers, an error by its kind."""
    try:
        return await call()
    except TapewayError as exc:
        return type(exc).__name__


async def compare(sides: Sequence[Side], prefix: str) -> None:
    plan, log = Script(f"{SEED} {prefix}"), list[str]()
    for side in sides:
        side.leases.clear()
        side.seen.clear()
        side.versions.clear()
        side.marks.clear()
    for number in range(STEPS):
        what, seed = plan.chance.choice(CHOICES), f"{SEED} {prefix} {number}"
        said = [
            await told(getattr(Calls(side, Script(seed), prefix, number), what)) for side in sides
        ]
        log.append(f"{what} of {seed}")
        assert said[1] == said[0], f"{log[-1]}: {said}, after {', '.join(log[:-1])}"


@asynccontextmanager
async def two_instances(new: Callable[[], SharedStore]) -> AsyncIterator[Side]:
    async with AsyncExitStack() as stack:
        stores = [new(), new()]
        for store in stores:
            await store.open()
            stack.push_async_callback(store.close)
            await store.join(WANTED, lambda _: None)
        yield Side(stores)


SHARED = [kind for kind in KINDS if kind.shared]


@pytest.mark.parametrize("against", SHARED, ids=str)
async def test_a_shared_store_answers_as_the_one_of_dictionaries(
    against: Kind, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = ModelPlace()
    async with (
        two_instances(lambda: ModelStore(place)) as model,
        against.of_test(request, tmp_path) as there,
        two_instances(lambda: shared_of(there.again())) as other,
    ):
        for script in range(SCRIPTS):
            await compare([model, other], f"script-{script}")


def shared_of(store: CassetteStore) -> SharedStore:
    shared = store.shared
    assert shared is not None
    return shared


class WholeCalls:
    """The same for what every store can, on one instance."""

    def __init__(self, store: CassetteStore, script: Script, prefix: str, number: int) -> None:
        self.s, self.n = store, script.chance.choice([f"{prefix}-x", f"{prefix}-y"])
        self.names = (f"{prefix}-x", f"{prefix}-y")
        self.which, self.at = script.below(NUMBERS), script.below(9)
        self.sometimes, self.head = script.happens(0.4), HEADS[script.below(2)]
        self.answer = b"%d of %d" % (self.which, number)

    async def _claimed(self) -> Sequence[AnyInteraction]:
        found = await self.s.load(self.n, writable=True)
        return () if found is None else found.interactions

    def _next(self, items: Sequence[AnyInteraction]) -> tuple[int, list[int]]:
        """The index of a new recording, and those it supersedes."""
        following = max([item.index for item in items], default=-1) + 1
        gone = [items[self.at % len(items)].index] if items and self.sometimes else []
        return following, gone

    async def append(self) -> None:
        index, gone = self._next(await self._claimed())
        made = other_answer(self.which, index, *gone, body=self.answer)
        await self.s.append(self.n, self.head, made)

    async def append_large(self) -> None:
        index, gone = self._next(await self._claimed())
        file = await kept(self.s, [self.answer * 10], self.n)
        await self.s.append(self.n, self.head, large(index, file, *gone))

    async def save(self) -> None:
        items = list(await self._claimed())
        left = [item for at, item in enumerate(items) if at != self.at]
        made = other_answer(self.which, 0, body=self.answer).interaction
        await self.s.save(self.n, StoredCassette(self.head, (*left, made)))

    async def release(self) -> None:
        await self.s.release(self.n)

    async def remove(self) -> object:
        return await self.s.remove(self.n)

    async def load(self) -> object:
        found = await self.s.load(self.n, writable=self.sometimes)
        return found and (found.head, await asyncio.to_thread(contents, found))

    async def names_there(self) -> object:
        return [name for name in await self.s.names() if name in self.names]

    async def stat(self) -> object:
        return await self.s.stat(self.n) is not None


WHOLE = ["append", "append", "append", "append_large", "save", "release", "remove", "load"]
WHOLE += ["names_there", "stat"]


@pytest.mark.parametrize("against", [*KINDS, OUTSIDE], ids=str)
async def test_every_store_keeps_whole_cassettes_as_the_one_of_dictionaries_does(
    against: Kind, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    model = ModelStore(ModelPlace())
    await model.open()
    async with against.of_test(request, tmp_path) as there:
        other = there.again()
        await other.open()
        for script in range(SCRIPTS):
            plan, log = Script(f"{SEED} whole {script}"), list[str]()
            for number in range(STEPS):
                what, seed = plan.chance.choice(WHOLE), f"{SEED} whole {script} {number}"
                said = [
                    await told(getattr(WholeCalls(store, Script(seed), f"w{script}", number), what))
                    for store in (model, other)
                ]
                log.append(f"{what} of {seed}")
                assert said[1] == said[0], f"{log[-1]}: {said}, after {', '.join(log[:-1])}"
        await other.close()
    await model.close()
