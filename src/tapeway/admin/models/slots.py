"""Bodies and responses of slots; the OpenAPI document describes them."""

from pydantic import Field

from tapeway.admin.models.control import InForce
from tapeway.admin.models.schema import Name, RequestModel
from tapeway.core.model.control import Mode


class SlotChange(RequestModel):
    cassette: Name
    mode: Mode | None = Field(
        None, description="The mode of requests through the slot; that of its cassette if null."
    )
    rules: dict[str, object] | None = Field(
        None, description="Keys and values of `[rules]` to add to the cassette."
    )


class SlotInForce(InForce):
    slot: str
    cassette: str
    mode: Mode
    take: int = Field(description="The slot's own take: entries of the journal have it too.")


class RemovedSlot(InForce):
    removed: str
