"""How the proxy listener behaves."""

from dataclasses import dataclass

from tapeway.core.model.control import Delivery
from tapeway.core.streams.pacing import AT_ONCE, Pace


@dataclass(frozen=True, slots=True)
class Manners:
    """What the settings say about the proxy listener; seconds and bytes."""

    max_body: int
    body_idle_s: float
    miss_status: int = 424
    rewrite_location: bool = True
    admin: str | None = None
    delivery: Delivery = "buffer"
    pace: Pace = AT_ONCE
