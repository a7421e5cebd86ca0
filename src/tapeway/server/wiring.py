"""Builds the parts of a serving process from settings; the only file that names concrete classes."""

import asyncio
import gc
import os
import secrets
import ssl
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Collection
from datetime import UTC, datetime
from types import ModuleType
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from aiohttp.web_server import Server

from tapeway.admin.auth import AdminGuard, GuessLimiter
from tapeway.core.cassette.rerecording import CHECKED_FIELD
from tapeway.core.http.foreign import ForeignGuard
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.redaction.known_values import Allowed
from tapeway.descriptors import max_upstream_connections, raise_descriptor_limit
from tapeway.engine.broker import Broker
from tapeway.engine.hooks import load_hooks
from tapeway.engine.journal import RequestIds, RequestJournal, ServedRequests
from tapeway.engine.recording.selection import Policy
from tapeway.engine.report.standards import Standards
from tapeway.engine.request_log import AccessLog
from tapeway.errors import ConfigError
from tapeway.importing import imported
from tapeway.loop_guard import LoopGuard
from tapeway.ports import CassetteStore
from tapeway.providers.catalogue import PROVIDERS
from tapeway.providers.paths import owner
from tapeway.providers.prices import PriceTable
from tapeway.server.listeners import Listener, load_certificate
from tapeway.server.proxy import Proxy, ProxyOptions
from tapeway.settings.client_environment import served_routes
from tapeway.settings.options import Settings, process_secrets, resolve_routes, resolve_signing
from tapeway.settings.parsers import CertificateChoice
from tapeway.stores.opening import open_store
from tapeway.upstream.address_guard import AddressGuard
from tapeway.upstream.client import Limits, UpstreamClient
from tapeway.upstream.outer_proxy import proxy_choice
from tapeway.version import VERSION

if TYPE_CHECKING:
    from tapeway.admin.listener import AdminRunner

_SWITCH_INTERVAL_S = 0.0002
"""How long the event loop waits for a thread that computes; Python's default is 5 ms.

The loop waits for each thread in turn. Measured while thousands of cassettes began, with 16 threads
of a store: clients waited 74 ms at 1 ms, and 46 ms at this value.
"""

BoundAddress = tuple[str, int]
"""Host and port of a listener."""


def make_store(settings: Settings) -> CassetteStore:
    """The store, not yet opened. Raises ConfigError."""
    return open_store(settings.store, token=settings.store_token, ca=settings.store_ca)


def make_client(settings: Settings, own: Collection[BoundAddress]) -> UpstreamClient:
    """The client for upstreams, which refuses to ask our `own` listeners. Raises ConfigError."""
    hosts = {urlsplit(p.url).hostname for p in PROVIDERS.values() if p.url}
    guard = AddressGuard(
        frozenset(host for host in hosts if host and "." in host), settings.allow_address
    )
    guard.own = frozenset(own)
    return UpstreamClient(
        guard,
        Limits(
            settings.connect_timeout,
            settings.upstream_timeout,
            max_upstream_connections(),
        ),
        LoopGuard(),
        tls=_tls(settings, None),
        certificates={
            certificate.name: _tls(settings, certificate) for certificate in settings.upstream_cert
        },
        clock=time.monotonic,
        signing=resolve_signing(settings),
        proxies=proxy_choice(settings.upstream_proxy, os.environ),
    )


def make_broker(
    settings: Settings,
    store: CassetteStore,
    client: UpstreamClient,
    journal: RequestJournal,
) -> Broker:
    """The broker, to be entered as a context. Raises ConfigError for a file of prices, or hooks."""
    return Broker(
        store,
        client,
        mode=settings.mode,
        cassette=settings.cassette,
        routes=resolve_routes(settings, os.environ),
        policy=Policy(
            repeats=settings.repeats,
            record_statuses=settings.record_statuses,
            max_body=settings.max_body,
            record_failures=settings.record_failures,
            require_marks=settings.require_marks,
            minimal_headers=settings.record_headers == "minimal",
        ),
        new_head=_new_head,
        known=process_secrets(settings, os.environ),
        allowed=Allowed(settings.not_secret),
        rules=settings.rules,
        presets=settings.presets,
        standards=Standards(_prices(settings), settings.max_age),
        journal=journal,
        faults=settings.fault,
        hooks=load_hooks(settings.hooks),
    )


def make_proxy(
    settings: Settings,
    broker: Broker,
    journal: ServedRequests,
    admin: str | None,
    client: UpstreamClient,
    listener: Listener,
) -> Proxy:
    """The handler of the proxy listener; `admin` is the URL at which a miss names the journal."""
    named = (settings.listen.host, *settings.allow_host)
    options = ProxyOptions(
        max_body=settings.max_body,
        body_idle_s=settings.body_timeout,
        miss_status=settings.miss_status,
        scheme="http" if settings.tls_cert is None else "https",
        rewrite=settings.rewrite,
        admin=admin,
        page=settings.page_url or (admin and f"{admin}/"),
        admin_token=settings.admin_token is not None,
        record_command=settings.record_command,
        delivery=settings.delivery,
        pace=settings.pace,
        websocket=settings.websocket,
        guard=ForeignGuard.of_listener(listener.host, named, settings.allow_origin),
    )
    return Proxy(
        *(
            broker,
            AccessLog(journal) if settings.access_log else journal,
            owner,
            options,
            client.loops,
        ),
        clock=time.monotonic,
        now=time.time,  # noqa: TID251 - when a request came; a datetime takes longer than a look-up
        ids=RequestIds(f"tw-{secrets.token_hex(4)}"),
        dial=client.dial,
    )


def make_admin(
    settings: Settings,
    broker: Broker,
    journal: RequestJournal,
    listener: Listener,
    *,
    proxy: str,
) -> Callable[[], Awaitable[Server]]:
    """A function that makes the admin API, not yet listening.

    Raises ConfigError at once if it would be open to other hosts without a token.
    """
    # Refused now, and not when somebody calls.
    AdminGuard(listener.host, settings.admin_token, GuessLimiter(time.monotonic))

    async def made() -> Server:
        # The models take a third of the time of a start: the first call builds them.
        app, runners = await asyncio.to_thread(_import_admin)
        application = app.make_application(
            broker,
            journal,
            token=settings.admin_token,
            listener=listener.address,
            version=VERSION,
            proxy=proxy,
            named_routes=served_routes(settings),
            record_command=settings.record_command,
            certificate=settings.tls_cert if settings.admin_tls else None,
        )
        runner: AdminRunner = runners.AdminRunner(application)
        await runner.setup()
        return cast(Server, runner.server)

    return made


def tune_for_start() -> None:
    """Allow more open files, and fewer garbage collections; call it before cassettes are loaded."""
    raise_descriptor_limit()
    # What is imported stays.
    gc.freeze()
    # Cassettes stay in memory, and what a request allocates is nearly all freed by reference
    # counting. As nothing is looked at again after a full collection, the work is the same however
    # often one is made; a thousand objects take a millisecond, and a full collection looks at 16,000.
    gc.set_threshold(1_000, 3, 3)
    gc.callbacks.append(_freeze)


def tune_for_serving() -> None:
    """Exempt what is loaded from garbage collection, and have threads yield to the event loop."""
    gc.freeze()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)


def _freeze(phase: str, info: dict[str, int]) -> None:
    """Exempt the survivors of a full collection from later ones, to keep these short.

    Later garbage in cycles among survivors is never freed. A lost connection is no cycle.
    """
    if phase == "stop" and info["generation"] == 2:
        gc.freeze()


def _import_admin() -> tuple[ModuleType, ModuleType]:
    modules = imported("tapeway.admin.app"), imported("tapeway.admin.listener")
    # What is imported stays; the next collection would look at all of it, on the event loop.
    gc.freeze()
    return modules


def _prices(settings: Settings) -> PriceTable:
    if settings.prices is None:
        return PriceTable()
    # Only here: few have prices of their own.
    from tapeway.settings.price_file import load_prices

    return load_prices(settings.prices)


def _tls(settings: Settings, certificate: CertificateChoice | None) -> ssl.SSLContext | bool:
    """The trust in upstreams, and the client certificate for them."""
    if certificate is None and (settings.insecure_upstream or settings.upstream_ca is None):
        return not settings.insecure_upstream
    context = trusting(None if settings.insecure_upstream else settings.upstream_ca)
    context.set_alpn_protocols(("http/1.1",))
    if settings.insecure_upstream:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        load_certificate(context, "--upstream-cert", certificate.cert, certificate.key)
    return context


def trusting(authorities: str | None) -> ssl.SSLContext:
    """Trust in the authorities of the system and of `--upstream-ca`. Raises ConfigError."""
    context = ssl.create_default_context()
    if authorities is not None:
        try:
            context.load_verify_locations(authorities)
        except OSError as exc:
            raise ConfigError(
                f"--upstream-ca {authorities} cannot be read as PEM certificates"
            ) from exc
    return context


def _new_head() -> CassetteHead:
    now = datetime.now(UTC)
    return CassetteHead(
        created_at=now.isoformat(),
        run_id=str(uuid.uuid4()),
        # Set from the beginning: recording anew on the same day changes nothing.
        meta={"tapeway_version": VERSION, CHECKED_FIELD: now.date().isoformat()},
    )
