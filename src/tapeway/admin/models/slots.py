"""Bodies and responses of slots; the OpenAPI document describes them."""

from pydantic import Field

from tapeway.admin.models.schema import Name, RequestModel, ResponseModel, Text
from tapeway.core.model.control import Mode


class SlotChange(RequestModel):
    cassette: Name
    mode: Mode | None = Field(
        None, description="The mode of requests through the slot; that of its cassette if null."
    )
    rules: dict[str, object] | None = Field(
        None, description="Keys and values of `[rules]` to add to the cassette."
    )
    record_command: Text | None = Field(
        None,
        description="The command that records what is missed through the slot: log, page and reports name it.",
    )
    faults: list[dict[str, object]] | None = Field(
        None,
        description="Faults to lay over what is replayed through the slot, as PUT /api/v1/faults takes "
        "them; each counts in the slot's take.",
    )


class Checked(ResponseModel):
    """What a slot could be told."""

    cassette: str


class SlotInForce(ResponseModel):
    slot: str
    cassette: str
    mode: Mode
    take: int = Field(description="The slot's own take: entries of the journal have it too.")


class SentQuery(RequestModel):
    take: int | None = Field(None, description="Only requests of this take of the slot.")
    since: int | None = Field(
        None,
        description="Only requests of this take of the slot and of later ones; without it and "
        "`take`, of those since the slot was pointed where it points.",
    )


class SentRequest(ResponseModel):
    """A request as the app sent it, its secrets replaced."""

    id: str = Field(description="That of its journal entry.")
    take: int = Field(description="The take of the slot.")
    method: Text
    route: str
    path: Text
    headers: list[tuple[str, str]] = Field(description="Those that cassettes store.")
    body: object = Field(
        description="Parsed if it is JSON, otherwise a text; null if it is empty, large or binary."
    )


class SentPage(ResponseModel):
    requests: list[SentRequest] = Field(description="Oldest first.")


class RemovedSlot(ResponseModel):
    removed: str
