"""Where somebody who knows nothing of the API begins."""

from aiohttp import web

from tapeway.admin.console import Console
from tapeway.admin.metrics import CONTENT_TYPE
from tapeway.admin.payloads import Index
from tapeway.admin.route import Plain
from tapeway.errors import StoreError


async def index(console: Console, call: Plain) -> Index:
    """Where the API and its description are."""
    return Index(
        name="tapeway",
        version=console.version,
        api="/api/v1/status",
        openapi="/openapi.json",
    )


async def openapi(console: Console, call: Plain) -> web.Response:
    """The OpenAPI 3.1 document of this API."""
    return web.Response(body=console.openapi, content_type="application/json")


async def metrics(console: Console, call: Plain) -> web.Response:
    """Counts in Prometheus' text format; nothing of cassettes while their store is away."""
    try:
        loaded = await console.broker.loaded()
    except StoreError:
        loaded = None
    return web.Response(body=console.metrics.text(loaded), headers={"Content-Type": CONTENT_TYPE})
