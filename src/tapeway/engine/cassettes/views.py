"""Reads cassettes of a shared store for one instance.

Of each cassette it reads facts without recordings, and for each request a view: the few recordings
that may answer, as a small cassette.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from uuid import UUID, uuid5

from tapeway.core.agenttape.lookup import origin_of_url
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.cassette.recording_keys import recording_key
from tapeway.core.http.routing import RouteTable, assign_route, path_prefixes, with_route
from tapeway.core.matching.key import key_digest
from tapeway.core.matching.rules import NO_RULES, Rules, rules_of_meta
from tapeway.core.model.cassette import CassetteHead, Outline, StoredCassette, TakenRecording
from tapeway.core.model.control import Control, CursorState
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.core.model.messages import Request
from tapeway.engine.cassettes.context import CassetteContext, with_rules
from tapeway.engine.cassettes.source import NO_TURNS, CassetteInfo, Search, View
from tapeway.engine.decision import is_large
from tapeway.engine.journal import MOST_EMPTY
from tapeway.ports import SharedStore
from tapeway.providers.api_call import calls_model

_LARGE_VIEW = 100
"""Recordings from which on a view remembers keys: a hit looks up fewer."""
_RUN_ID_NAMESPACE = UUID("6a3f3d0c-9d0e-4d4c-8a53-7f0f4f4b5d11")


class CassetteInfos:
    """Facts that one instance knows about the cassettes of a shared store."""

    def __init__(self, store: SharedStore, context: CassetteContext) -> None:
        self._store = store
        self._context = context
        self.known: dict[str, CassetteInfo] = {}

    async def of(self, name: str) -> CassetteInfo:
        """What is known of a cassette; read where it is not known yet. Raises StoreError."""
        info = self.known.get(name)
        if info is None or not info.stored_already:
            info = self.known[name] = await self.read(name)
        return info

    async def read(self, name: str) -> CassetteInfo:
        """Read it from the store, where the rules of the settings are added. Raises StoreError."""
        outline = await self._store.outline(name)
        if outline is None:
            stored = with_rules(name, StoredCassette(self._new_head(name)), self._context.rules)
            return self._info_of(stored.head, Outline(stored.head, 0), stored_already=False)
        stored = StoredCassette(outline.head)
        ruled = with_rules(name, stored, self._context.rules)
        if ruled is not stored:
            await self._store.replace_head(name, ruled.head)
        return self._info_of(ruled.head, outline, stored_already=True)

    def empty(self, name: str) -> CassetteInfo:
        """The facts about a cassette that does not exist, or cannot be read."""
        head = self._new_head(name)
        return self._info_of(head, Outline(head, 0), stored_already=False)

    def _new_head(self, name: str) -> CassetteHead:
        # The head stays until stored, or a placeholder would change with every request.
        if (known := self.known.get(name)) is not None:
            return known.head
        # Instances that create the cassette simultaneously must use equal placeholders for a secret.
        return replace(self._context.new_head(), run_id=str(uuid5(_RUN_ID_NAMESPACE, name)))

    def _info_of(
        self, head: CassetteHead, outline: Outline, *, stored_already: bool
    ) -> CassetteInfo:
        table = self._context.routes
        bases = {base for route, base in outline.sources if not route}
        # Where no route to an origin has a path, all recordings of the origin are on one route.
        unsure = {base for base in bases if any(path_prefixes(base, table))}
        routes = {route for route, _ in outline.sources if route}
        routes.update(_route_of(base, "", table) for base in bases - unsure)
        origins = sorted(origin for origin in map(origin_of_url, bases) if origin is not None)
        return CassetteInfo(
            head,
            rules_of_meta(head.meta),
            routes,
            has_unrouted=bool(bases),
            stored_already=stored_already,
            origins=tuple(dict.fromkeys(origins)),
            unsure=unsure,
        )


def _route_of(base: str, prefix: str, table: RouteTable) -> str:
    return with_route(Request("", "", f"{prefix}/", base=base), table).route


class EmptyTakes:
    """Finds the takes in force of names that hold nothing: names can be made up."""

    def __init__(self, store: SharedStore) -> None:
        self._store = store
        self._most = MOST_EMPTY

    async def ended(self, control: Control) -> Collection[str]:
        """The names whose takes are to be forgotten: those that began first. Raises StoreError."""
        names = control.names
        if len(names) < self._most:
            return ()
        stored = {*await self._store.names(), control.active}
        oldest = sorted(names, key=lambda name: control.takes_of(name)[-1])[: -MOST_EMPTY // 2]
        absent = [name for name in oldest if name not in stored]
        self._most = max(MOST_EMPTY, 2 * (len(names) - len(absent)))
        return absent


def info_of(search: Search) -> CassetteInfo:
    """The facts about the cassette of a search."""
    if search.info is None:
        raise ValueError("a search in a shared store knows the cassette")
    return search.info


def items(view: View) -> list[TakenRecording]:
    held = view.cassette
    return [
        TakenRecording(
            interaction, held.take_of(interaction.index), held.place_of(interaction.index)
        )
        for interaction in held
    ]


def merged_view(view: View, more: Iterable[TakenRecording]) -> list[TakenRecording]:
    """The recordings of both; for a recording in both, the view's matched object."""
    seen = {recording.item.index: recording for recording in chain(more, items(view))}
    return sorted(seen.values(), key=lambda recording: (recording.place, recording.item.index))


class _RecordingKeys:
    """The match keys of recordings that the store returns as the same objects again.

    Those of the last large look-up are remembered: a client with only misses looks at equal
    recordings each time.
    """

    def __init__(self) -> None:
        self._rules = NO_RULES
        self._known: dict[int, tuple[AnyInteraction, bytes]] = {}

    def of(self, items: Sequence[AnyInteraction], rules: Rules) -> Mapping[int, bytes]:
        """The keys of recordings under some rules, by index; none for few recordings."""
        if len(items) < _LARGE_VIEW:
            return {}
        before = self._known if rules == self._rules else {}
        known, keys = dict[int, tuple[AnyInteraction, bytes]](), dict[int, bytes]()
        for item in items:
            if not isinstance(item, Interaction):
                continue
            held = before.get(id(item))
            if held is None or held[0] is not item:
                held = (item, recording_key(item, rules))
            known[id(item)] = held
            keys[item.index] = held[1]
        self._known, self._rules = known, rules
        return keys


class CassetteViews:
    """Looks recordings up in a shared store."""

    def __init__(self, store: SharedStore, context: CassetteContext) -> None:
        self._store = store
        self._context = context
        self._keys = _RecordingKeys()

    async def look_up(
        self, search: Search, names: Sequence[bytes] = (), writes: Sequence[bytes] = ()
    ) -> View:
        """The recordings of a search, and the recordings under `names`, further digests.

        The take gets these counters of `writes` too. Recordings without a route that answer are found
        too. Raises StoreError.
        """
        info, incoming = info_of(search), search.incoming
        wanted = dict.fromkeys([*map(key_digest, search.keys), *names])
        if info.has_unrouted:
            # A recording without a route is found by its whole path.
            whole = self._context.planner.whole_path_key(info.rules, incoming)
            wanted[key_digest(whole)] = None
        cursors = [*search.keys, *writes]
        turns, recordings, version = await self._store.look(
            search.name, search.take, cursors, list(wanted)
        )
        if incoming.route_guessed and info.unsure and not recordings:
            await self._find_routes(search.name, info)
        return await self.of(search, recordings, turns, version)

    async def under(self, search: Search, keys: Sequence[bytes]) -> View:
        """The present recordings with further keys. Raises StoreError."""
        digests = list(map(key_digest, keys))
        turns, recordings, version = await self._store.look(search.name, search.take, keys, digests)
        return await self.of(search, recordings, turns, version)

    async def _find_routes(self, name: str, info: CassetteInfo) -> None:
        """Find the routes of recordings without a stated route: a miss tells whether any is."""
        table = self._context.routes
        for base in list(info.unsure):
            prefixes = path_prefixes(base, table)
            used = await self._store.unrouted_prefixes(name, base, prefixes)
            info.routes.update(_route_of(base, route, table) for route in used)
            info.unsure.discard(base)

    async def of(
        self,
        search: Search,
        recordings: Iterable[TakenRecording],
        turns: Mapping[bytes, CursorState] = NO_TURNS,
        version: str | None = None,
    ) -> View:
        """A view of found recordings, with the cursors of a take."""
        recordings = list(recordings)
        if any(
            is_large(recording.item.request)
            for recording in recordings
            if isinstance(recording.item, Interaction)
        ):
            return await asyncio.to_thread(self._indexed, search, recordings, turns, version)
        return self._indexed(search, recordings, turns, version)

    def _indexed(
        self,
        search: Search,
        recordings: Sequence[TakenRecording],
        turns: Mapping[bytes, CursorState],
        version: str | None,
    ) -> View:
        info = info_of(search)
        items = [assign_route(recording.item, self._context.routes) for recording in recordings]
        stored = StoredCassette(info.head, tuple(items), self._keys.of(items, info.rules))
        places = {recording.item.index: recording.place for recording in recordings}
        cassette = CassetteIndex(
            *(search.name, stored),
            take=search.take,
            other_routes=info.routes,
            places=places,
            whole_version=version,
            calls_model=calls_model,
        )
        cassette.set_takes({recording.item.index: recording.take for recording in recordings})
        for key, turn in turns.items():
            cassette.take.restore_key(key, turn.state)
        return View(cassette, search, turns, version)
