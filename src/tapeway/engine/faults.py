"""Finds the fault in force for a request, and counts the fault in the take."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar
from urllib.parse import unquote

from tapeway.core.cassette.plan import Incoming, Replay
from tapeway.core.http.headers import FAULT_HEADER
from tapeway.core.matching.rules import wildcard_pattern
from tapeway.core.model.control import Control
from tapeway.core.model.faults import Fault
from tapeway.core.model.messages import Request
from tapeway.engine.cassettes.source import Source
from tapeway.errors import RequestError
from tapeway.providers.api_call import describe_call

T = TypeVar("T")


class FaultsOfRequest(NamedTuple):
    """Faults for a request, in order, each with the key of a counter.

    A `named` fault happens whatever `match` says.
    """

    faults: Sequence[tuple[bytes, Fault]] = ()
    named: bool = False


def faults_of(
    control: Control, slot: str | None, cassette: str, request: Request
) -> FaultsOfRequest:
    """The faults in force for a request, as far as the request decides; faults of the slot come first.

    Raises RequestError if the request names a fault that is not in force.
    """
    named = request.fields.value(FAULT_HEADER)
    if named is None and not control.faults and slot is None:
        return FaultsOfRequest()
    pointed = control.slots.get(slot or "")
    # No match key begins so. A slot that is pointed anew has another take.
    keyed = [(b"slot", fault) for fault in (() if pointed is None else pointed.faults)]
    keyed += [(b"%d" % control.faults_set, fault) for fault in control.faults]
    faults = [(b"\0fault %b %b" % (of, fault.name.encode()), fault) for of, fault in keyed]
    if named is None:
        fitting = [item for item in faults if item[1].times and _fits(item[1], request, cassette)]
        return FaultsOfRequest(fitting)
    if chosen_by_name := [item for item in faults if item[1].name.encode() == named]:
        return FaultsOfRequest(chosen_by_name[:1], named=True)
    known = ", ".join([fault.name for _, fault in faults]) or "none"
    raise RequestError(
        f"no fault in force here has the name in Tapeway-Fault; in force: {known}. Set the fault by "
        "[[fault]] in tapeway.toml, PUT /api/v1/faults, or the 'faults' of the slot",
        code="no_fault",
    )


def still_fitting(wanted: FaultsOfRequest, replay: Replay, take: int | None) -> FaultsOfRequest:
    """The faults for a recording, without faults that are used up in the take, as far as known."""
    counts, index = replay.cassette.running(take).faults, replay.interaction.index
    left = [
        (key, fault)
        for key, fault in wanted.faults
        if (wanted.named or fault.match.get("index", index) == index)
        and not 0 < fault.times <= counts[key]
    ]
    return FaultsOfRequest(left, wanted.named)


async def chosen(
    source: Source,
    incoming: Incoming,
    replay: Replay,
    wanted: FaultsOfRequest,
    lay: Callable[[Fault], T | None],
) -> T | None:
    """The first fault with a place in the answer, which `lay` finds, counted in the take.

    Raises StoreError.
    """
    name, take = replay.cassette.name, incoming.take
    for key, fault in wanted.faults:
        if (laid := lay(fault)) is not None and (
            not fault.times or await source.count_fault(name, take, key, fault.times)
        ):
            return laid
    return None


def _fits(fault: Fault, request: Request, cassette: str) -> bool:
    """Whether a fault is for a request; the recording decides on the rest."""
    asked: dict[str, str | None] = {
        "method": request.method,
        "path": unquote(request.target.partition("?")[0]),
        "cassette": cassette,
    }
    if "model" in fault.match:
        call = describe_call(request.route, request)
        asked["model"] = None if call is None else call.model
    return all(
        wildcard_pattern(text.upper() if name == "method" else text).fullmatch(asked[name] or "")
        for name, text in fault.match.items()
        if isinstance(text, str)
    )
