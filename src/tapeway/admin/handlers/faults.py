"""Faults laid over what is replayed."""

from collections.abc import Sequence
from typing import cast

from tapeway.admin.context import HandlerContext
from tapeway.admin.models.faults import FaultsChange, FaultsInForce
from tapeway.admin.models.schema import Nothing
from tapeway.admin.operation import OperationCall, PlainCall
from tapeway.core.model.faults import Fault, FaultRefused, faults_document, parse_faults
from tapeway.errors import AdminError


async def get_faults(context: HandlerContext, call: PlainCall) -> FaultsInForce:
    """The faults that are laid over all replays."""
    return FaultsInForce(faults=_documents(context.broker.faults))


async def put_faults(
    context: HandlerContext, call: OperationCall[Nothing, FaultsChange]
) -> FaultsInForce:
    """Lay these faults over all replays, in place of all before; each counts from the beginning."""
    await context.broker.set_faults(given_faults(call.body.faults))
    return FaultsInForce(faults=_documents(context.broker.faults))


def given_faults(documents: Sequence[object]) -> tuple[Fault, ...]:
    """The faults in a body. Raises AdminError for what is none."""
    try:
        return parse_faults(documents)
    except FaultRefused as refused:
        raise AdminError(str(refused), code="bad_fault") from None


def _documents(faults: Sequence[Fault]) -> list[dict[str, object]]:
    return cast("list[dict[str, object]]", faults_document(faults))
