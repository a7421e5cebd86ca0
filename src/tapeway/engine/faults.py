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


NO_FAULTS = FaultsOfRequest()


def faults_of(
    control: Control, slot: str | None, cassette: str, request: Request
) -> FaultsOfRequest:
    """The faults in force that may be for a request, its slot's before all others.

    Raises RequestError where the request names a fault that is not in force.
    """
    named = request.fields.value(FAULT_HEADER)
    if named is None and not control.faults and slot is None:
        return NO_FAULTS
    pointed = None if slot is None else control.slots.get(slot)
    own = () if pointed is None else pointed.faults
    # No match key begins so. A slot that is pointed anew has another take.
    keyed = [(b"\0fault slot %b" % fault.name.encode(), fault) for fault in own]
    before = b"\0fault %d " % control.faults_set
    keyed += [(before + fault.name.encode(), fault) for fault in control.faults]
    if named is None:
        return FaultsOfRequest(
            [
                (key, fault)
                for key, fault in keyed
                if fault.times and _fits(fault, request, cassette)
            ]
        )
    chosen = [(key, fault) for key, fault in keyed if fault.name.encode() == named]
    if not chosen:
        known = ", ".join([fault.name for _, fault in keyed]) or "none"
        raise RequestError(
            f"no fault that is in force here has the name in Tapeway-Fault; in force: {known}. Set it "
            "by [[fault]] in tapeway.toml, PUT /api/v1/faults, or the 'faults' of the slot",
            code="no_fault",
        )
    return FaultsOfRequest(chosen[:1], named=True)


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
        if not wanted.named and fault.match.index not in (None, replay.interaction.index):
            continue
        if (laid := lay(fault)) is not None and (
            not fault.times or await source.count_fault(name, take, key, fault.times)
        ):
            return laid
    return None


def _fits(fault: Fault, request: Request, cassette: str) -> bool:
    match = fault.match
    path = unquote(request.target.partition("?")[0])
    if match.model is not None:
        call = describe_call(request.route, request)
        if call is None or call.model is None or not _is_like(match.model, call.model):
            return False
    return (
        (match.method is None or match.method.upper() == request.method)
        and (match.path is None or _is_like(match.path, path))
        and (match.cassette is None or _is_like(match.cassette, cassette))
    )


def _is_like(pattern: str, text: str) -> bool:
    return wildcard_pattern(pattern).fullmatch(text) is not None
