"""Which fault in force is for a request, and whether it still happens in the take."""

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
    """The faults that may be for a request, in order, each with the key of its counter.

    One that the request has `named` is for it whatever its `match` says.
    """

    faults: Sequence[tuple[bytes, Fault]] = ()
    named: bool = False


def faults_of(
    control: Control, slot: str | None, cassette: str, request: Request
) -> FaultsOfRequest:
    """The faults in force that may be for a request, its slot's before all others.

    Raises RequestError where the request names a fault that is not in force.
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
        f"no fault that is in force here has the name in Tapeway-Fault; in force: {known}. Set it by "
        "[[fault]] in tapeway.toml, PUT /api/v1/faults, or the 'faults' of the slot",
        code="no_fault",
    )


def still_fitting(wanted: FaultsOfRequest, replay: Replay, take: int | None) -> FaultsOfRequest:
    """The faults that are for a recording too, without those known to have happened in the take."""
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
    """The first of some faults to whose place the answer comes, as `lay` finds it.

    It is counted in the take. Raises StoreError.
    """
    name, take = replay.cassette.name, incoming.take
    for key, fault in wanted.faults:
        if (laid := lay(fault)) is not None and (
            not fault.times or await source.count_fault(name, take, key, fault.times)
        ):
            return laid
    return None


def _fits(fault: Fault, request: Request, cassette: str) -> bool:
    """Whether a fault is for a request, as far as that is known without the recording."""
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
