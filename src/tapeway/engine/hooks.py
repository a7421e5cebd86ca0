"""Functions of a user for recordings, replays and misses.

Arguments and results have the form of a cassette's file: see `docs/cassette-format.md`.
"""

import asyncio
import importlib
import logging
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar, cast

from tapeway.core.json_text import Json
from tapeway.core.misses.miss import NearestRecording
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseHead
from tapeway.errors import ConfigError, HookFailed
from tapeway.formats.errors import FormatFault
from tapeway.formats.native import bodies, chunk_times, http_exchange

log = logging.getLogger(__name__)
T = TypeVar("T")

Document = dict[str, Json]
_NO_ANSWER = Response(ResponseHead(200))
_NAMES = ("before_record", "before_replay", "on_miss")


@dataclass(frozen=True, slots=True)
class Hooks:
    """The user's functions, called in a thread, one call at a time."""

    before_record: Callable[[Document], Document | None] | None = None
    before_replay: Callable[[Document, Document], Document] | None = None
    on_miss: Callable[[Document, Sequence[Document]], object] | None = None
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def recorded(self, interaction: Interaction) -> Interaction | None:
        """A recording as `before_record` has it stored; None where it leaves it out.

        Raises HookFailed.
        """
        if (hook := self.before_record) is None:
            return interaction
        before = _document(interaction)
        after = await self._call(lambda: hook(_document(interaction)))
        if after is None or after == before:
            return None if after is None else interaction
        if interaction.has_large_bodies:
            raise HookFailed("before_record cannot change a recording with a body in a file")
        made = _read("before_record", before, after, interaction.index)
        return replace(made, stored_keys=interaction.stored_keys)

    async def replayed(self, request: Request, interaction: Interaction) -> Interaction:
        """A recording with the answer that `before_replay` gives to a request. Raises HookFailed."""
        hook, response = self.before_replay, interaction.response
        if hook is None or interaction.failure is not None or response.file is not None:
            return interaction
        asked = replace(interaction, request=request)
        document, before = _document(asked), _document(asked)
        given = await self._call(
            lambda: hook(_member(document, "request"), _member(document, "response"))
        )
        after = {**before, "response": given}
        return replace(
            interaction, response=_read("before_replay", before, after, interaction.index).response
        )

    async def missed(self, request: Request, nearest: Sequence[NearestRecording]) -> None:
        """Tell `on_miss` of a miss. What it raises is logged: the client gets its miss."""
        if (hook := self.on_miss) is None:
            return
        asked = _member(_document(Interaction(0, request, _NO_ANSWER, stored_keys=())), "request")
        found = [recording.document for recording in nearest]
        try:
            await self._call(lambda: hook(asked, found))
        except HookFailed as exc:
            log.error("%s", exc.message)

    async def _call(self, call: Callable[[], T]) -> T:
        async with self._one_at_a_time:
            try:
                return await asyncio.to_thread(call)
            except Exception as exc:
                raise HookFailed(_where(exc)) from exc


NO_HOOKS = Hooks()


def load_hooks(place: str | None) -> Hooks:
    """The hooks at `module:object`, which may lie in the working directory. Raises ConfigError."""
    if place is None:
        return NO_HOOKS
    module, colon, name = place.partition(":")
    if not (colon and module and name):
        raise ConfigError(f"hooks = '{place}': write MODULE:OBJECT, as tests.hooks:Hooks")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        found: object = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as exc:
        raise ConfigError(f"hooks = '{place}' cannot be imported: {_where(exc)}") from exc
    given = {name: getattr(found, name) for name in _NAMES if hasattr(found, name)}
    if not given or not all(map(callable, given.values())):
        raise ConfigError(f"hooks = '{place}' has no function called {', '.join(_NAMES)}")
    return Hooks(**given)


def _document(interaction: Interaction) -> Document:
    return http_exchange.encode(interaction)


def _member(document: Document, name: str) -> Document:
    return cast(Document, document[name])


def _read(hook: str, before: Document, after: object, index: int) -> Interaction:
    """The interaction in the result of a hook. Raises HookFailed."""
    if not isinstance(after, dict):
        raise HookFailed(f"what {hook} returned is no object but {type(after).__name__}")
    try:
        if isinstance(response := after.get("response"), dict):
            after = {
                **after,
                "response": _without_old_chunks(_member(before, "response"), response),
            }
        return http_exchange.decode(after, index, ())
    except (FormatFault, TypeError, ValueError) as exc:
        raise HookFailed(f"what {hook} returned cannot be used: {exc}") from exc


def _without_old_chunks(before: Document, after: Document) -> Document:
    """An answer without the chunks of a body from before the change."""
    of_body, of_chunks = (
        {name: document.get(name) for name in names}
        for document, names in ((after, bodies.NAMES), (after, chunk_times.NAMES))
    )
    if all(before.get(name) == value for name, value in of_body.items()):
        return after
    if any(before.get(name) != value for name, value in of_chunks.items()):
        return after
    return {name: value for name, value in after.items() if name not in of_chunks}


def _where(exc: BaseException) -> str:
    """An exception in one line, with file and line in the user's code."""
    frames = [
        frame
        for frame in traceback.extract_tb(exc.__traceback__)
        if frame.filename != __file__ and "importlib" not in frame.filename
    ]
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}: " if frames else ""
    return f"{place}{type(exc).__name__}: {exc}"
