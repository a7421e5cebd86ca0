"""What reports measure by. It is a setting, and apart from the report, which few servers make."""

from dataclasses import dataclass, field
from datetime import date, timedelta

from tapeway.providers.prices import PriceTable


@dataclass(frozen=True, slots=True)
class Standards:
    """Prices, and after how many days a recording is stale, if ever."""

    prices: PriceTable = field(default_factory=PriceTable)
    max_age: int | None = None

    def oldest(self, today: str) -> str | None:
        """The day before which a recording is stale."""
        if self.max_age is None:
            return None
        try:
            return (date.fromisoformat(today) - timedelta(days=self.max_age)).isoformat()
        except OverflowError:
            return None


NO_LIMITS = Standards()
