"""Tells what clients did after faults: asked again, took a cut answer for whole, or gave up."""

from collections import deque
from dataclasses import dataclass, replace
from typing import Literal

from tapeway.core.json_text import Json, json_object
from tapeway.core.model.faults import STATUSES, Fault

MOST_FAULTED = 1000
"""Faulted calls that are named per cassette."""

_MOST_OPEN = 16
"""The newest faulted calls, for which is looked what comes next."""
_MOST_COMPARED = 256 * 1024
"""Larger bodies are not compared."""

Next = Literal["retried", "took_for_whole", "gave_up"]
_CONVERSATIONS = ("messages", "contents", "input")
"""The members of a request in which its conversation stands."""
_BY_CLIENT = frozenset({"user", "system", "developer"})
_WHOLE = STATUSES | {"stall", "slow"}
"""Faults that cut nothing off an answer."""
_EARLY_S = 0.01
"""Timers of clients wake up so much too early."""


@dataclass(frozen=True, slots=True)
class FaultedCall:
    """A call with a fault, and the client's next step, `after_s` seconds later.

    `kept_retry_after` is None if the fault asked for no wait, or the client did not ask again.
    """

    fault: str
    do: str
    method: str
    path: str
    retry_after: float | None = None
    next: Next = "gave_up"
    after_s: float | None = None
    kept_retry_after: bool | None = None

    @property
    def message(self) -> str:
        """What happened in a sentence."""
        done = "the client did not ask again"
        if self.next == "took_for_whole":
            done = "the client took the cut answer for whole and went on"
        elif self.after_s is not None:
            done = f"the client asked again after {self.after_s:.2f} s"
        if self.kept_retry_after is not None:
            kept = "as" if self.kept_retry_after else "before"
            done += f", {kept} Retry-After said ({self.retry_after:g} s)"
        return f"{self.method} {self.path}: {self.do} by fault '{self.fault}'; {done}"


@dataclass(frozen=True, slots=True)
class _Open:
    """A faulted call whose client has done nothing yet."""

    place: int
    caller: tuple[bytes | None, str | None]
    answered_at: float
    asked: bytes


class FaultedCalls:
    """The faulted calls of a cassette, in order, and the requests that follow.

    A caller is a match key and a slot, `asked` is the body of a request.
    """

    def __init__(self) -> None:
        self.calls: list[FaultedCall] = []
        self._open: deque[_Open] = deque(maxlen=_MOST_OPEN)

    def __bool__(self) -> bool:
        return bool(self._open)

    def follow(self, caller: tuple[bytes | None, str | None], at: float, asked: bytes) -> None:
        """Take a later request, perhaps a client's next step after a fault."""
        for faulted in self._open:
            if faulted.caller == caller:
                return self._close(faulted, "retried", at)
            is_cut = self.calls[faulted.place].do not in _WHOLE
            if is_cut and faulted.caller[1] == caller[1] and _goes_on(faulted.asked, asked):
                return self._close(faulted, "took_for_whole", at)
        return None

    def add(
        self,
        fault: Fault,
        call: tuple[str, str],
        caller: tuple[bytes | None, str | None],
        answered_at: float,
        asked: bytes,
    ) -> None:
        """Note a faulted call, by method and path."""
        if len(self.calls) < MOST_FAULTED:
            compared = asked if len(asked) <= _MOST_COMPARED else b""
            self._open.append(_Open(len(self.calls), caller, answered_at, compared))
            self.calls.append(FaultedCall(fault.name, fault.do, *call, fault.retry_after))

    def _close(self, faulted: _Open, what: Next, at: float) -> None:
        self._open.remove(faulted)
        call, after_s = self.calls[faulted.place], max(0.0, at - faulted.answered_at)
        kept = None
        if what == "retried" and call.retry_after is not None:
            kept = after_s >= call.retry_after - _EARLY_S
        self.calls[faulted.place] = replace(
            call, next=what, after_s=round(after_s, 3), kept_retry_after=kept
        )


def _goes_on(before: bytes, asked: bytes) -> bool:
    """Whether a request has the conversation of an earlier request, and then a turn of the model."""
    if not len(before) < len(asked) <= _MOST_COMPARED:
        return False
    first, second = json_object(before) or {}, json_object(asked) or {}
    for name in _CONVERSATIONS:
        earlier, later = _turns(first.get(name)), _turns(second.get(name))
        if earlier and len(later) > len(earlier) and later[: len(earlier)] == earlier:
            said = later[len(earlier)]
            return isinstance(said, dict) and said.get("role") not in _BY_CLIENT
    return False


def _turns(turns: Json) -> list[Json]:
    # One text stands for one turn of the user.
    return turns if isinstance(turns, list) else [turns] if isinstance(turns, str) else []
