"""The report of a tapeway, made of what its admin API says."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tapeway.core.json_text import Json
from tapeway.embedded.admin_client import DeckError
from tapeway.errors import TapewayError
from tapeway.html_report.collection import ReportLimits, collect
from tapeway.html_report.page import html_report


class Caller(Protocol):
    """Calls the admin API; `embedded.admin_client.AdminClient` does."""

    def call(self, method: str, path: str, body: object = None, **query: object) -> Any: ...


def collected_page(
    client: Caller, limits: ReportLimits, reports: Sequence[Mapping[str, Any]] | None = None
) -> str:
    """The page with what the admin API tells now, or with these reports. Raises TapewayError."""

    def call(path: str, query: dict[str, object]) -> Json:
        try:
            found: Json = client.call("GET", path, None, **query)
        except DeckError as exc:
            raise TapewayError(str(exc), code=exc.code) from exc
        return found

    return html_report(collect(call, limits, reports))
