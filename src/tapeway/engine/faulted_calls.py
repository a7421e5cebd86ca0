"""What clients did after faults: asked again, took a cut answer for whole, or gave up."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tapeway.core.json_text import Json, json_object
from tapeway.core.model.faults import Fault

MOST_FAULTED = 1000
"""Faulted calls that are named per cassette."""

Next = Literal["retried", "took_for_whole", "gave_up"]
_CONVERSATIONS = ("messages", "contents", "input")
"""The members of a request in which its conversation stands."""
_BY_CLIENT = frozenset({"user", "system", "developer"})
_CUTS = frozenset({"end", "corrupt", "repeat", "error_event", "reset", "timeout"})
_EARLY_S = 0.01
"""Timers of clients wake up so much too early."""


@dataclass(frozen=True, slots=True)
class FaultedCall:
    """A call that a fault was laid over, and what its client did next, so many seconds later.

    `kept_retry_after` is None where the fault asked for no wait, or nothing was asked again.
    """

    fault: str
    do: str
    method: str
    path: str
    next: Next = "gave_up"
    after_s: float | None = None
    retry_after: float | None = None
    kept_retry_after: bool | None = None

    @property
    def message(self) -> str:
        """What happened in a sentence."""
        return f"{self.method} {self.path}: {self.do} by fault '{self.fault}'; {self._next}"

    @property
    def _next(self) -> str:
        if self.next == "gave_up" or self.after_s is None:
            return "the client did not ask again"
        if self.next == "took_for_whole":
            return "the client took the cut answer for whole and went on"
        waited = f"the client asked again after {self.after_s:.2f} s"
        if self.kept_retry_after is None:
            return waited
        kept = "as" if self.kept_retry_after else "before"
        return f"{waited}, {kept} Retry-After said ({self.retry_after:g} s)"


@dataclass(slots=True)
class _Open:
    """A faulted call whose client has done nothing yet."""

    place: int
    key: bytes | None
    slot: str | None
    answered_at: float
    asked: bytes


class FaultedCalls:
    """The faulted calls of a cassette, in order; each request that follows may be what came next."""

    def __init__(self) -> None:
        self.calls: list[FaultedCall] = []
        self._open: list[_Open] = []

    def __bool__(self) -> bool:
        return bool(self._open)

    def follow(self, key: bytes | None, slot: str | None, at: float, asked: bytes) -> None:
        """Look whether a request is what a client did after a fault; `asked` is its body."""
        for faulted in self._open:
            if faulted.slot != slot:
                continue
            if key is not None and faulted.key == key:
                self._close(faulted, "retried", at)
                return
            if faulted.asked and _goes_on(faulted.asked, asked):
                self._close(faulted, "took_for_whole", at)
                return

    def add(
        self,
        fault: Fault,
        call: tuple[str, str],
        key: bytes | None,
        slot: str | None,
        answered_at: float,
        asked: bytes,
    ) -> None:
        """Note a faulted call, by method and path."""
        if len(self.calls) >= MOST_FAULTED:
            return
        cut = asked if fault.do in _CUTS else b""
        self._open.append(_Open(len(self.calls), key, slot, answered_at, cut))
        self.calls.append(FaultedCall(fault.name, fault.do, *call, retry_after=fault.retry_after))

    def _close(self, faulted: _Open, what: Next, at: float) -> None:
        self._open.remove(faulted)
        call = self.calls[faulted.place]
        after_s = max(0.0, at - faulted.answered_at)
        kept = None
        if what == "retried" and call.retry_after is not None:
            kept = after_s >= call.retry_after - _EARLY_S
        self.calls[faulted.place] = FaultedCall(
            *(call.fault, call.do, call.method, call.path, what, round(after_s, 3)),
            *(call.retry_after, kept),
        )


def _goes_on(before: bytes, asked: bytes) -> bool:
    """Whether a request holds the conversation of an earlier one, and then what the model said."""
    first, second = json_object(before), json_object(asked)
    if first is None or second is None:
        return False
    for name in _CONVERSATIONS:
        earlier, later = _turns(first, name), _turns(second, name)
        if earlier and len(later) > len(earlier) and later[: len(earlier)] == earlier:
            said = later[len(earlier)]
            return isinstance(said, dict) and said.get("role") not in _BY_CLIENT
    return False


def _turns(request: Mapping[str, Json], name: str) -> list[Json]:
    turns = request.get(name)
    # One text stands for one turn of the user.
    return turns if isinstance(turns, list) else [turns] if isinstance(turns, str) else []
