"""The body and the response of faults; the OpenAPI document describes them."""

from pydantic import Field

from tapeway.admin.models.schema import RequestModel, ResponseModel
from tapeway.core.model.faults import MOST_FAULTS

_EACH = (
    "Each has a `name` and what to `do`; optional are `match`, `times`, `after`, `retry_after`, "
    "`seconds` and `code`, as docs/faults.md says."
)


class FaultsChange(RequestModel):
    faults: list[dict[str, object]] = Field(
        description=f"All faults from now on; none if empty. {_EACH}",
        max_length=MOST_FAULTS,
    )


class FaultsInForce(ResponseModel):
    faults: list[dict[str, object]] = Field(
        description=f"Laid over what is replayed, the first that fits. {_EACH}"
    )
