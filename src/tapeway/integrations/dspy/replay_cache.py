"""A replacement for DSPy's cache that records the answers of models, and replays without models.

    with ReplayCache("tests/fixtures/qa.json"):          # CACHE_MODE=record records
        answer = program(question="What is 2+2?").answer

DSPy 3.0 to 3.4 works. A whole answer is in the file before the program sees the answer. Leaving the
block writes nothing, so an exception damages nothing.
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

from tapeway.core.json_text import Json
from tapeway.core.misses.differences import differences
from tapeway.core.redaction.credentials import Secret, searchable
from tapeway.core.redaction.known_values import KnownValues
from tapeway.errors import ConfigError, StoreError
from tapeway.formats.native.secret_scan import SecretScanner
from tapeway.formats.other_tools.dspy import IGNORED
from tapeway.integrations.blocking_cassette import BlockingCassette
from tapeway.integrations.dspy.entries import (
    CassetteEntryStore,
    Entries,
    EntryStore,
    FileEntryStore,
)
from tapeway.integrations.dspy.values import decode_value, encode_value, parse_object
from tapeway.settings.options import Settings, process_secrets

try:
    import dspy  # type: ignore[import-not-found, unused-ignore]  # it has an environment of its own
    from dspy.clients.cache import (  # type: ignore[import-not-found, unused-ignore]
        Cache,
    )
    from dspy.utils import exceptions  # type: ignore[import-not-found, unused-ignore]
except ImportError as exc:
    raise ImportError("tapeway.integrations.dspy needs DSPy: pip install dspy") from exc


from tapeway.integrations.dspy.live_guard import refuse_live_calls

log = logging.getLogger(__name__)

Mode = Literal["record", "replay", "auto"]
MODES: tuple[Mode, ...] = ("record", "replay", "auto")
VARIABLE = "CACHE_MODE"

_LMError: Any = getattr(exceptions, "LMError", Exception)
# These carry credentials, and neither DSPy's key nor a reader needs such fields.
_NOT_RECORDED = (*IGNORED, "headers", "extra_headers", "default_headers")
_MAX_COMPARED = 200


class BadModeError(ConfigError, ValueError):
    """The mode given, or that in CACHE_MODE, is none."""


class CacheMissError(_LMError):  # type: ignore[misc, unused-ignore]
    """A request without a recording or a key. The message names the request and the nearest entry.

    `request` is the request without credentials, in the form of the file.
    """

    def __init__(
        self, message: str, key: str, place: str, request: Mapping[str, Json] | None = None
    ) -> None:
        super().__init__(f"Cache miss: {message}")
        self.request = dict(request or {})
        self.cache_key = key
        self.cache_file = place


class ReplayCache:
    """A drop-in for `dspy.cache`, in force within the `with` block, in all threads.

    `path` is a JSON file, or with `cassette` a store's address as `tapeway serve --store` takes it.
    Mode `replay` answers only from it and otherwise raises CacheMissError, `record` asks the service
    once for each request, `auto` only for those that are not recorded. The default is the variable
    CACHE_MODE, then `replay`. Entries that are not asked for stay.

    Values are rebuilt only from classes of litellm, openai and dspy, and of modules that `allow`
    names. In `replay`, calls that bypass the cache are refused unless `uncached` is "allow".
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
        self._store = _open_store(os.fspath(path), cassette, self.mode)
        self._allow = tuple(allow)
        self._uncached = uncached
        self._lock = threading.RLock()
        self._entries: Entries = {}
        self._recorded: set[str] = set()
        self._exit_stack: ExitStack | None = None

    def cache_key(
        self, request: dict[str, Any], ignored_args_for_cache_key: list[str] | None = None
    ) -> str:
        """DSPy's key. Raises DSPy's error for a request without a key."""
        key: str = Cache.cache_key(self, request, ignored_args_for_cache_key)
        return key

    def get(
        self, request: dict[str, Any], ignored_args_for_cache_key: list[str] | None = None
    ) -> Any:
        """A new copy of the recorded value, or None if the service is to be asked.

        Raises CacheMissError.
        """
        key = self._key(request, ignored_args_for_cache_key)
        with self._lock:
            if self.mode == "record" and key not in self._recorded:
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
        """Record a value, durable on return. Raises StoreError, also for a value outside JSON."""
        key = self._key(request, ignored_args_for_cache_key)
        if self.mode == "replay":
            log.warning("%s: an answer came in mode replay and is not kept", self._store.shown)
            return
        entry = self._entry(request, value)
        with self._lock:
            # Of two concurrent answers to one request, the first counts.
            if key not in self._recorded and (self.mode == "record" or key not in self._entries):
                self._store.put(key, entry)
                self._entries[key] = entry
                self._recorded.add(key)

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def reset_memory_cache(self) -> None:
        """Do nothing: memory holds only what is recorded."""

    def __enter__(self) -> Self:
        """Replace `dspy.cache`. Raises StoreError if there is nothing to replay."""
        if self._exit_stack is not None:
            raise RuntimeError("this ReplayCache is in force already: make another one")
        entries = self._store.read()
        if entries is None and self.mode == "replay":
            raise StoreError(
                f"{self._store.shown}: there is nothing to replay; record it first: "
                f"{VARIABLE}=record, or mode='record'"
            )
        self._entries, self._recorded, self.first_miss = entries or {}, set(), None
        with ExitStack() as stack:
            stack.callback(self._store.close)
            if self.mode == "replay" and self._uncached == "refuse":
                stack.enter_context(refuse_live_calls(self._refused))
            stack.enter_context(_in_force(self))
            self._exit_stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        stack, self._exit_stack = self._exit_stack, None
        replaced = vars(dspy).get("cache") is not self
        if stack is not None:
            stack.close()
        if self.first_miss is not None and exc is None:
            log.warning("a miss was passed over: %s", self.first_miss)
        if replaced and exc is None:
            raise RuntimeError(
                "dspy.cache was replaced while a ReplayCache was in force (dspy.configure_cache?): "
                "since then nothing was recorded or replayed"
            )

    def _key(self, request: dict[str, Any], ignored: list[str] | None) -> str:
        try:
            return self.cache_key(request, ignored)
        except Exception as exc:  # orjson and inspect raise what they like
            message = (
                f"this request has no key in DSPy's cache, so it can neither be recorded nor "
                f"replayed ({type(exc).__name__}): {_summary(request)}; leave out what is no JSON"
            )
            raise self._remember(self._error(message, "", request)) from exc

    def _miss(self, request: dict[str, Any], key: str) -> CacheMissError:
        message = (
            f"{_summary(request)} is not in {self._store.shown} (key {key[:12]}…)"
            f"{self._nearest(request)}; record it with {VARIABLE}=record"
        )
        if self.first_miss is not None:
            message += f". The first of this run: {self.first_miss}"
        return self._remember(self._error(message, key, request))

    def _refused(self, what: str) -> CacheMissError:
        message = (
            f"{what}, and in mode replay nothing is asked; turn its cache on and record it, or give "
            "ReplayCache uncached='allow'"
        )
        return self._remember(CacheMissError(message, "", self._store.shown))

    def _error(self, message: str, key: str, request: Mapping[str, Any]) -> CacheMissError:
        try:
            shown = _readable_request(request)
        except (ValueError, RecursionError):  # it may have no key for the same reason
            shown = {}
        return CacheMissError(message, key, self._store.shown, shown)

    def _remember(self, miss: CacheMissError) -> CacheMissError:
        with self._lock:
            if self.first_miss is None:
                self.first_miss = miss
        return miss

    def _nearest(self, request: dict[str, Any]) -> str:
        asked, best = _readable_request(request), None
        for key, entry in list(self._entries.items())[-_MAX_COMPARED:]:
            recorded = entry.get("request")
            differing = differences(recorded, asked, 20)
            if best is None or len(differing) < len(best[1]):
                best = key, differing
        if best is None or not best[1]:
            return ""
        return f"; nearest {best[0][:12]}… differs at {best[1][0].path}"

    def _value(self, key: str, entry: Mapping[str, Json]) -> object:
        response = entry.get("response")
        try:
            return decode_value(response if isinstance(response, dict) else {}, self._allow)
        except (TypeError, ValueError) as exc:
            # The message of pydantic would repeat the whole answer.
            reason = str(exc) if type(exc) is ValueError else type(exc).__name__
            raise StoreError(f"{self._store.shown}: entry {key[:12]}…: {reason}") from exc

    def _entry(self, request: dict[str, Any], value: object) -> dict[str, Json]:
        try:
            response = encode_value(value, self._allow)
        except ValueError as exc:
            raise StoreError(f"{self._store.shown}: nothing was recorded: {exc}") from exc
        entry: dict[str, Json] = {"request": _readable_request(request), "response": response}
        scanner = SecretScanner(self._store.run_id(), KnownValues(_secrets(request)))
        seen = scanner.document(entry)
        for finding in seen.left:
            raise StoreError(
                f"nothing was recorded: the credential '{finding.kind}' would still be in "
                f"{'.'.join(map(str, finding.place))}; keep it out of there"
            )
        return seen.document


def _mode(given: str | None) -> Mode:
    mode = given if given is not None else os.environ.get(VARIABLE) or "replay"
    for known in MODES:
        if mode.lower() == known:
            return known
    where = "mode" if given is not None else VARIABLE
    raise BadModeError(f"{where}: {mode!r} is not accepted; use {', '.join(MODES)}")


def _open_store(path: str, cassette: str | None, mode: Mode) -> EntryStore:
    if cassette is not None:
        return CassetteEntryStore(BlockingCassette(path, cassette, repeats="last"))
    return FileEntryStore(Path(path), {"dspy_version": version("dspy"), "mode": mode})


@contextmanager
def _in_force(cache: ReplayCache) -> Iterator[None]:
    # Reading the attribute would create the cache, with a folder in the home directory.
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
    """The value as returned by DSPy's cache: without usage, since a hit costs nothing."""
    if hasattr(value, "usage"):
        value.usage = {}
        object.__setattr__(value, "cache_hit", True)
    return value


def _summary(request: Mapping[str, Any]) -> str:
    inner = request.get("request")
    model = request.get("model") or (inner.get("model") if isinstance(inner, dict) else None)
    return f"{model or 'a request'} ({request.get('_fn_identifier', 'unknown')})"


def _readable_request(request: Mapping[str, Any]) -> dict[str, Json]:
    """The request as JSON for people, without what carries credentials."""
    shown = {
        str(name): _plain(value) for name, value in request.items() if name not in _NOT_RECORDED
    }
    return parse_object(shown)


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
    for name in _NOT_RECORDED:
        value = request.get(name)
        values = value.values() if isinstance(value, dict) else [value]
        for text in values:
            if name not in ("api_base", "base_url") and isinstance(text, str):
                yield from searchable(name.replace("_", "-"), text.encode())
