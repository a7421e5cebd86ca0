"""Records and replays calls of a program's functions: tools, retrieval, memory.

    with Cassette("cassettes/agent.yaml") as cassette:
        weather = cassette.call("tool", "get_weather", {"city": "London"})

AgentTape's cassettes are read unchanged, and AgentTape's tools read these recordings.
"""

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal, Self, get_args

from tapeway.core.agenttape.key import DEFAULT_IGNORED, ORDERED_KEY
from tapeway.core.cassette import cursors
from tapeway.core.json_text import Json
from tapeway.core.matching import rules
from tapeway.core.misses.differences import difference_document, differences
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.control import Repeats
from tapeway.core.model.interaction import ForeignInteraction
from tapeway.core.redaction.known_values import KnownValues
from tapeway.errors import CallMissed, ConfigError, StoreError
from tapeway.formats.cassette_file import SERIALIZER_BY_SUFFIX
from tapeway.formats.native.secret_scan import SecretScanner
from tapeway.integrations.blocking_cassette import BlockingCassette
from tapeway.integrations.calls.recorded_calls import CallSlots, boundary_of, key_of, request_of
from tapeway.integrations.calls.values import (
    NotRecordable,
    exception_to_json,
    json_to_exception,
    json_to_value,
    value_to_json,
)
from tapeway.ports import CassetteStore
from tapeway.settings.options import Settings, process_secrets
from tapeway.stores.file.store import FileStore

Kind = Literal["tool", "retrieval", "memory_read", "memory_write", "llm"]
Mode = Literal["replay", "record", "auto"]
_KINDS: tuple[Kind, ...] = get_args(Kind)
_MODES: tuple[Mode, ...] = get_args(Mode)
_MAX_NAMED = 3


def store_of_file(path: Path) -> tuple[CassetteStore, str]:
    """The store for a cassette's file, not yet open, and the name of the cassette in the store.

    Raises ConfigError for a file that is no cassette, or whose cassette exists with another suffix.
    """
    if path.suffix not in SERIALIZER_BY_SUFFIX:
        raise ConfigError(
            f"'{path}' is no cassette file: it ends in {', '.join(SERIALIZER_BY_SUFFIX)}; for a cassette of a "
            "store, name that with store="
        )
    beside = [path.with_suffix(suffix) for suffix in SERIALIZER_BY_SUFFIX if suffix != path.suffix]
    if not path.exists() and (others := [file for file in beside if file.exists()]):
        raise ConfigError(
            f"'{path}' is not there, but '{others[0]}' is, and a cassette is one file: name that "
            "one, or convert it with: tapeway cassette convert"
        )
    serializer = SERIALIZER_BY_SUFFIX[path.suffix]
    # A new file gets the suffix that the path has.
    suffixes = (path.suffix, *[suffix for suffix in serializer.suffixes if suffix != path.suffix])
    if suffixes != serializer.suffixes:
        serializer = replace(serializer, suffixes=suffixes)
    return FileStore(path.parent, serializer), path.stem


class Cassette:
    """The calls of one cassette, loaded by the first call. Threads may share a cassette.

    `place` is the path of a cassette file. With `store` (an address as for `--store`, or a
    private store) `place` is the name of a cassette. Mode `replay` answers every call from
    the cassette, each recording once and in order, as AgentTape does; `repeats` can change that.
    `auto` calls the function for an unrecorded call, and records the result. `record` calls every
    time, and replaces the recordings of earlier runs.
    """

    def __init__(
        self,
        place: str | Path,
        *,
        store: str | CassetteStore | None = None,
        mode: Mode = "replay",
        repeats: Repeats | None = None,
    ) -> None:
        """Raises ConfigError for a place or mode that cannot be used."""
        if mode not in _MODES:
            raise ConfigError(f"there is no mode '{mode}': use {', '.join(_MODES)}")
        if store is None:
            store, name = store_of_file(Path(place))
        else:
            name = str(place)
        self.mode = mode
        self._repeats = repeats
        self._cassette = BlockingCassette(store, name, repeats=repeats or "miss")
        self._lock = threading.RLock()
        self._known = KnownValues(process_secrets(Settings(), os.environ))
        self._slots: CallSlots | None = None
        self._ignore: tuple[str, ...] = DEFAULT_IGNORED
        self._run_id: str | None = None
        self._recorded: dict[str, set[int]] = {}

    def call(
        self,
        kind: Kind,
        name: str,
        args: Mapping[str, object],
        executor: Callable[[], object] | None = None,
    ) -> object:
        """The recorded result of this call, or the recorded error, raised again.

        `args` are all arguments by name, defaults included. `executor` makes the call if it is not
        recorded. Raises CallMissed if no recording is left and the call cannot be made, StoreError.
        """
        request, document = self._find(kind, name, args)
        if document is not None:
            return _answer(document)
        if executor is None or self.mode == "replay":
            raise self._missed(kind, name, request)
        began = time.perf_counter()
        try:
            result = executor()
        except Exception as exc:
            self._record(kind, name, request, began, error=exception_to_json(exc))
            raise
        self._record(kind, name, request, began, response=_recordable(name, result))
        return result

    async def acall(
        self,
        kind: Kind,
        name: str,
        args: Mapping[str, object],
        executor: Callable[[], Awaitable[object]] | None = None,
    ) -> object:
        """Like `call`, for an awaited call."""
        request, document = await asyncio.to_thread(self._find, kind, name, args)
        if document is not None:
            return _answer(document)
        if executor is None or self.mode == "replay":
            raise self._missed(kind, name, request)
        began = time.perf_counter()
        try:
            result = await executor()
        except Exception as exc:
            await asyncio.to_thread(
                self._record, kind, name, request, began, error=exception_to_json(exc)
            )
            raise
        response = _recordable(name, result)
        await asyncio.to_thread(self._record, kind, name, request, began, response=response)
        return result

    def rewind(self) -> None:
        """Start over: every recording can be used again."""
        with self._lock:
            self._recorded.clear()
            self._loaded().rewind()

    def close(self) -> None:
        """Write the final form of the cassette and close it. Raises StoreError."""
        with self._lock:
            self._slots = None
            self._cassette.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _find(
        self, kind: Kind, name: str, args: Mapping[str, object]
    ) -> tuple[dict[str, Json], Mapping[str, Json] | None]:
        if kind not in _KINDS:
            raise ConfigError(f"calls of kind '{kind}' are not made here: use {', '.join(_KINDS)}")
        arguments = _recordable(name, {str(argument): value for argument, value in args.items()})
        request = request_of(kind, name, arguments if isinstance(arguments, dict) else {})
        with self._lock:
            slots = self._loaded()
            if self.mode == "record":
                return request, None
            return request, slots.next(kind, boundary_of(kind, name), self._keys(request))

    def _keys(self, request: dict[str, Json]) -> list[str]:
        # AgentTape computes its key before it redacts.
        keys = [key_of(request, self._ignore), key_of(self._plain(request), self._ignore)]
        return [key for key in keys if key]

    def _record(
        self, kind: Kind, name: str, request: dict[str, Json], began: float, **outcome: Json
    ) -> None:
        elapsed_ms = round((time.perf_counter() - began) * 1000, 3)
        with self._lock:
            slots, boundary = self._loaded(), boundary_of(kind, name)
            plain = self._plain(request)
            key = key_of(plain, self._ignore)
            seen = SecretScanner(self._salt(), self._known).document(
                {"index": 0, "kind": kind, "boundary": boundary, "request": plain, **outcome}
            )
            if seen.left:
                kinds = ", ".join(sorted({secret.kind for secret in seen.left}))
                raise StoreError(f"a call of {name} shows a credential ({kinds}): it was not kept")
            document = {**seen.document, "latency_ms": elapsed_ms}
            if key:
                document["match_key"] = key
            superseded = self._superseded(slots, kind, boundary, key)
            index = self._cassette.put(ForeignInteraction(0, document), superseded)
            slots.remove(superseded)
            slots.add(index, document, used=True)
            self._recorded.setdefault(key, set()).add(index)

    def _superseded(self, slots: CallSlots, kind: Kind, boundary: str, key: str) -> tuple[int, ...]:
        if self.mode != "record" or key in self._recorded:
            return ()
        return tuple(slots.alike(kind, boundary, [key]))

    def _plain(self, request: dict[str, Json]) -> dict[str, Json]:
        document: dict[str, Json] = {"request": request}
        shown = SecretScanner(self._salt(), self._known).document(document).document["request"]
        return shown if isinstance(shown, dict) else request

    def _salt(self) -> str:
        if self._run_id is None:
            self._run_id = self._cassette.head().run_id
        return self._run_id

    def _loaded(self) -> CallSlots:
        if self._slots is None:
            stored = self._cassette.load()
            if stored is None and self.mode == "replay":
                raise StoreError(
                    f"there is no cassette {self._cassette.shown}: record it first, with "
                    "mode='record' or 'auto'"
                )
            stored = stored or StoredCassette(CassetteHead("", ""))
            ruled = rules.rules_of_meta(stored.head.meta).agenttape_ignore
            self._ignore = DEFAULT_IGNORED if ruled is None else ruled
            # In replay nothing is written, so the cassette is not claimed either.
            self._run_id = stored.head.run_id or ("" if self.mode == "replay" else None)
            own = stored.head.meta.get(cursors.REPEATS_FIELD)
            repeats = cursors.repeats_of_meta(stored.head.meta) if own is not None else "miss"
            self._slots = CallSlots(stored.interactions, self._ignore, self._repeats or repeats)
        return self._slots

    def _missed(self, kind: Kind, name: str, request: dict[str, Json]) -> CallMissed:
        with self._lock:
            slots, boundary = self._loaded(), boundary_of(kind, name)
            keys = self._keys(request)
            request = self._plain(request)
            called = f"replay miss: {kind} {request.get('endpoint' if kind == 'llm' else 'name')}"
            missed = f"{called} is not in cassette {self._cassette.shown}"
            if used_up := slots.alike(kind, boundary, (*keys, ORDERED_KEY)):
                shown_indexes = ", ".join(f"#{used}" for used in used_up)
                return CallMissed(
                    f"{called} is in cassette {self._cassette.shown} "
                    f"{len(used_up)} time(s), all used up: {shown_indexes}"
                )
            near = slots.nearest(kind, boundary, request)
        if near is None:
            return CallMissed(f"{missed}; no call of that kind is")
        index, document = near
        differing = differences(
            self._plain({"near": document.get("request")})["near"], request, _MAX_NAMED
        )
        places = ", ".join(str(difference_document(difference)["path"]) for difference in differing)
        return CallMissed(
            f"{missed}; nearest #{index} differs at {places or 'nothing that counts'}"
        )


def _recordable(name: str, value: object) -> Json:
    try:
        return value_to_json(value)
    except NotRecordable as exc:
        raise StoreError(f"a call of {name} cannot be kept: {exc}") from None


def _answer(document: Mapping[str, Json]) -> object:
    error = document.get("error")
    if isinstance(error, dict):
        raise json_to_exception(error)
    return json_to_value(document.get("response"))
