"""DSPy's cache as a recording: what a program's models answered, replayed without them.

    with ReplayCache("tests/fixtures/qa.json"):          # CACHE_MODE=record records
        answer = program(question="What is 2+2?").answer

For DSPy 3.0 to 3.4, which is to be installed besides. An answer is in the file before the program
gets it, whole; leaving writes nothing, so that an exception damages nothing.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from tapeway.core.json_text import Json, dump, parse
from tapeway.core.misses.differences import differences
from tapeway.core.redaction.credentials import MIN_VALUE, Secret
from tapeway.core.redaction.known_values import KnownValues
from tapeway.errors import ConfigError, StoreError
from tapeway.formats.native.secret_scan import SecretScanner
from tapeway.formats.other_tools.dspy import IGNORED
from tapeway.integrations.blocking_cassette import BlockingCassette
from tapeway.integrations.dspy.entries import Entries, EntryStore, FileShelf, StoreShelf
from tapeway.integrations.dspy.values import held, rebuilt
from tapeway.settings.options import Settings, process_secrets

try:
    import dspy  # type: ignore[import-not-found, unused-ignore]  # it has an environment of its own
    from dspy.clients.cache import (  # type: ignore[import-not-found, unused-ignore]
        Cache,
    )
    from dspy.utils import exceptions  # type: ignore[import-not-found, unused-ignore]
except ImportError as exc:
    raise ImportError("tapeway.integrations.dspy needs DSPy: pip install dspy") from exc

from tapeway.integrations.dspy.live_guard import shut

log = logging.getLogger(__name__)

Mode = Literal["record", "replay", "auto"]
MODES: tuple[Mode, ...] = ("record", "replay", "auto")
VARIABLE = "CACHE_MODE"

_LMError: Any = getattr(exceptions, "LMError", Exception)
# Of these nothing is kept: they carry credentials, and no key holds them or a person reads them.
_NEVER = (*IGNORED, "headers", "extra_headers", "default_headers")
_MOST_COMPARED = 200


class CacheMissError(_LMError):  # type: ignore[misc, unused-ignore]
    """A request that is not recorded, or could not be: what it was, and what comes nearest."""

    def __init__(self, message: str, key: str, place: str) -> None:
        super().__init__(message)
        self.cache_key = key
        self.cache_file = place


class ReplayCache:
    """A drop-in for `dspy.cache`, in force between `with` and its end, in all threads.

    `path` is a JSON file; with `cassette` it is a store's address as `tapeway serve --store` takes
    it. `replay` answers from it alone and raises CacheMissError otherwise; `record` asks for each
    request once, whatever is there; `auto` asks for what is not there. By default the variable
    CACHE_MODE decides, or else it is `replay`. Entries that are not asked for stay.

    Models that a value is rebuilt from lie in litellm, openai and dspy, or in a module that `allow`
    names. In `replay` calls that ask no cache are refused, unless `uncached` is "allow".
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        mode: Mode | None = None,
        *,
        cassette: str | None = None,
        allow: Sequence[str] = (),
        uncached: Literal["refuse", "allow"] = "refuse",
    ) -> None:
        self.mode: Mode = _mode(mode)
        self.first_miss: CacheMissError | None = None
        self._shelf = _shelf(os.fspath(path), cassette)
        self._allow = tuple(allow)
        self._uncached = uncached
        self._turn = threading.RLock()
        self._entries: Entries = {}
        self._made: set[str] = set()
        self._ends: ExitStack | None = None

    # What DSPy asks of a cache.

    def cache_key(
        self, request: dict[str, Any], ignored_args_for_cache_key: list[str] | None = None
    ) -> str:
        """DSPy's own key. Raises what DSPy raises for a request that has none."""
        key: str = Cache.cache_key(self, request, ignored_args_for_cache_key)
        return key

    def get(
        self, request: dict[str, Any], ignored_args_for_cache_key: list[str] | None = None
    ) -> Any:
        """The recorded value, a new copy, or None where it is to be asked for.

        Raises CacheMissError.
        """
        key = self._key(request, ignored_args_for_cache_key)
        with self._turn:
            if self.mode == "record" and key not in self._made:
                return None
            entry = self._entries.get(key)
            if entry is None:
                if self.mode == "replay":
                    raise self._miss(request, key)
                return None
        return _as_hit(self._value(key, entry))

    def put(
        self,
        request: dict[str, Any],
        value: Any,
        ignored_args_for_cache_key: list[str] | None = None,
        enable_memory_cache: bool = True,
    ) -> None:
        """Record a value, durable on return. Raises StoreError, also for one that no file can hold."""
        key = self._key(request, ignored_args_for_cache_key)
        if self.mode == "replay":
            log.warning("%s: an answer came in mode replay and is not kept", self._shelf.shown)
            return
        entry = self._entry(request, value)
        with self._turn:
            # Of two that were asked for at once the first counts, also for those who come later.
            if key not in self._made and (self.mode == "record" or key not in self._entries):
                self._shelf.put(key, entry)
                self._entries[key] = entry
                self._made.add(key)

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def reset_memory_cache(self) -> None:
        """Nothing: what is in memory is what is recorded."""

    # Its time.

    def __enter__(self) -> Self:
        """Take the place of `dspy.cache`. Raises StoreError where there is nothing to replay."""
        if self._ends is not None:
            raise RuntimeError("this ReplayCache is in force already: make another one")
        entries = self._shelf.read()
        if entries is None and self.mode == "replay":
            raise StoreError(
                f"{self._shelf.shown}: there is nothing to replay; record it first: "
                f"{VARIABLE}=record, or mode='record'"
            )
        self._entries, self._made, self.first_miss = entries or {}, set(), None
        with ExitStack() as ends:
            ends.callback(self._shelf.close)
            if self.mode == "replay" and self._uncached == "refuse":
                ends.enter_context(shut(self._refused))
            ends.enter_context(_in_force(self))
            self._ends = ends.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        ends, self._ends = self._ends, None
        replaced = vars(dspy).get("cache") is not self
        if ends is not None:
            ends.close()
        if self.first_miss is not None and exc is None:
            log.warning("a miss was passed over: %s", self.first_miss)
        if replaced and exc is None:
            raise RuntimeError(
                "dspy.cache was replaced while a ReplayCache was in force (dspy.configure_cache?): "
                "since then nothing was recorded or replayed"
            )

    # How it does it.

    def _key(self, request: dict[str, Any], ignored: list[str] | None) -> str:
        try:
            return self.cache_key(request, ignored)
        except Exception as exc:  # orjson and inspect raise what they like
            message = (
                f"this request has no key in DSPy's cache, so it can neither be recorded nor "
                f"replayed ({type(exc).__name__}): {_about(request)}; leave out what is no JSON"
            )
            raise self._noted(CacheMissError(message, "", self._shelf.shown)) from exc

    def _miss(self, request: dict[str, Any], key: str) -> CacheMissError:
        message = (
            f"replay miss: {_about(request)} is not in {self._shelf.shown} (key {key[:12]}…)"
            f"{self._nearest(request)}; record it with {VARIABLE}=record"
        )
        if self.first_miss is not None:
            message += f". The first of this run: {self.first_miss}"
        return self._noted(CacheMissError(message, key, self._shelf.shown))

    def _refused(self, what: str) -> CacheMissError:
        message = (
            f"{what}, and in mode replay nothing is asked; turn its cache on and record it, or give "
            "ReplayCache uncached='allow'"
        )
        return self._noted(CacheMissError(message, "", self._shelf.shown))

    def _noted(self, miss: CacheMissError) -> CacheMissError:
        with self._turn:
            if self.first_miss is None:
                self.first_miss = miss
        return miss

    def _nearest(self, request: dict[str, Any]) -> str:
        asked, best = _shown(request), None
        for key, entry in list(self._entries.items())[-_MOST_COMPARED:]:
            recorded = entry.get("request")
            found = differences(recorded, asked, 20)
            if best is None or len(found) < len(best[1]):
                best = key, found
        if best is None or not best[1]:
            return ""
        return f"; nearest {best[0][:12]}… differs at {best[1][0].path}"

    def _value(self, key: str, entry: Mapping[str, Json]) -> object:
        response = entry.get("response")
        try:
            return rebuilt(response if isinstance(response, dict) else {}, self._allow)
        except (TypeError, ValueError) as exc:
            # What pydantic says would repeat the whole answer.
            said = str(exc) if type(exc) is ValueError else type(exc).__name__
            raise StoreError(f"{self._shelf.shown}: entry {key[:12]}…: {said}") from exc

    def _entry(self, request: dict[str, Any], value: object) -> dict[str, Json]:
        try:
            response = held(value, self._allow)
        except ValueError as exc:
            raise StoreError(f"{self._shelf.shown}: nothing was recorded: {exc}") from exc
        entry: dict[str, Json] = {"request": _shown(request), "response": response}
        scanner = SecretScanner(self._shelf.run_id(), KnownValues(_secrets(request)))
        seen = scanner.document(entry)
        for finding in seen.left:
            raise StoreError(
                f"nothing was recorded: the credential '{finding.kind}' would still stand in "
                f"{'.'.join(map(str, finding.place))}; keep it out of there"
            )
        return seen.document


def _mode(given: str | None) -> Mode:
    said = given if given is not None else os.environ.get(VARIABLE) or "replay"
    for known in MODES:
        if said.lower() == known:
            return known
    where = "mode" if given is not None else VARIABLE
    raise ConfigError(f"{where}: {said!r} is not accepted; use {', '.join(MODES)}")


def _shelf(path: str, cassette: str | None) -> EntryStore:
    if cassette is not None:
        return StoreShelf(BlockingCassette(path, cassette, repeats="last"))
    return FileShelf(Path(path), {"dspy_version": version("dspy")})


@contextmanager
def _in_force(cache: ReplayCache) -> Iterator[None]:
    # Read as an attribute it would be made, with a folder in the home directory.
    absent = object()
    before = vars(dspy).get("cache", absent)
    dspy.cache = cache
    try:
        yield
    finally:
        if before is absent:
            vars(dspy).pop("cache", None)
        else:
            dspy.cache = before


def _as_hit(value: Any) -> Any:
    """The value as DSPy's own cache gives it: nothing was paid for it."""
    if hasattr(value, "usage"):
        value.usage = {}
        object.__setattr__(value, "cache_hit", True)
    return value


def _about(request: Mapping[str, Any]) -> str:
    inner = request.get("request")
    model = request.get("model") or (inner.get("model") if isinstance(inner, dict) else None)
    return f"{model or 'a request'} ({request.get('_fn_identifier', 'unknown')})"


def _shown(request: Mapping[str, Any]) -> dict[str, Json]:
    """The request for people to read, without what carries credentials."""
    kept = {str(name): said for name, said in request.items() if name not in _NEVER}
    found = parse(dump(_plain(kept)))
    return found if isinstance(found, dict) else {}


def _plain(value: Any) -> Json:
    match value:
        case dict():
            return {str(name): _plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_plain(inner) for inner in value]
        case None | bool() | str() | float():
            return value
        case int() if -(2**63) <= value < 2**63:
            return value
        case _:
            return _described(value)


def _described(value: Any) -> Json:
    for name in ("model_json_schema", "model_dump"):
        tell: Callable[..., Any] | None = getattr(value, name, None)
        if callable(tell) and isinstance(value, type) == (name == "model_json_schema"):
            return _plain(tell() if isinstance(value, type) else tell(mode="json"))
    return f"<{getattr(value, '__qualname__', type(value).__qualname__)}>"


def _secrets(request: Mapping[str, Any]) -> Iterator[Secret]:
    yield from process_secrets(Settings(), os.environ)
    for name in _NEVER:
        said = request.get(name)
        values = said.values() if isinstance(said, dict) else [said]
        for each in values:
            if (
                name not in ("api_base", "base_url")
                and isinstance(each, str)
                and len(each) >= MIN_VALUE
            ):
                yield Secret(name.replace("_", "-"), each.encode())
