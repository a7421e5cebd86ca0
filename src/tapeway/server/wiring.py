"""From settings to the parts that serve: the one file that names concrete classes."""

import gc
import itertools
import os
import secrets
import ssl
import sys
import time
import uuid
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from importlib.metadata import version
from urllib.parse import urlsplit

from tapeway.admin.app import make_application
from tapeway.admin.listener import AdminRunner
from tapeway.admin.processes import ServingProcesses
from tapeway.core.model.cassette import CassetteHead
from tapeway.engine.broker import Broker
from tapeway.engine.journal import RequestJournal, ServedRequests
from tapeway.engine.recorder import Policy
from tapeway.errors import ConfigError
from tapeway.ports import CassetteStore
from tapeway.providers.catalogue import PROVIDERS
from tapeway.providers.paths import owner
from tapeway.server.listeners import Listener
from tapeway.server.proxy import Proxy, ProxyOptions
from tapeway.settings.options import Settings, process_secrets, resolve_routes
from tapeway.stores.opening import open_store
from tapeway.upstream.address_guard import AddressGuard
from tapeway.upstream.client import Limits, UpstreamClient

VERSION = version("tapeway")

GRACE_S = 0.25
"""Twice this is what a connection that even then is not done may hold up the stop."""

_TURN_S = 0.001
"""So long the event loop waits at most for a thread that explains a miss; Python's default is 5 ms."""

Place = tuple[str, int]
"""Host and port of a listener."""


def make_store(settings: Settings) -> CassetteStore:
    """The store, not yet opened. Raises ConfigError."""
    token = settings.store_token.get_secret_value() if settings.store_token else None
    return open_store(settings.store, token=token, ca=settings.store_ca)


def make_client(settings: Settings, own: Collection[Place]) -> UpstreamClient:
    """What asks upstreams, and never one of our `own` listeners. Raises ConfigError."""
    hosts = {urlsplit(p.url).hostname for p in PROVIDERS.values() if p.url}
    guard = AddressGuard(
        frozenset(host for host in hosts if host and "." in host), settings.allow_address
    )
    guard.own = frozenset(own)
    return UpstreamClient(
        guard,
        Limits(settings.connect_timeout, settings.upstream_timeout),
        tls=_tls(settings),
        clock=time.monotonic,
    )


def make_broker(
    settings: Settings,
    store: CassetteStore,
    client: UpstreamClient,
    journal: RequestJournal,
) -> Broker:
    """The broker, to be entered as a context."""
    return Broker(
        store,
        client,
        mode=settings.mode,
        cassette=settings.cassette,
        routes=resolve_routes(settings),
        policy=Policy(
            repeats=settings.repeats,
            record_statuses=settings.record_statuses,
            max_body=settings.max_body,
            record_failures=settings.record_failures,
        ),
        new_head=_new_head,
        known=process_secrets(settings, os.environ),
        rules=settings.rules,
        journal=journal,
    )


def make_proxy(settings: Settings, broker: Broker, log: ServedRequests, admin: str | None) -> Proxy:
    """The handler of the proxy listener; `admin` is where a miss says its journal is."""
    options = ProxyOptions(
        max_body=settings.max_body,
        body_idle_s=settings.body_timeout,
        miss_status=settings.miss_status,
        rewrite_location=settings.rewrite_location,
        admin=admin,
        delivery=settings.delivery,
        pace=settings.pace,
    )
    return Proxy(broker, log, owner, options, clock=time.monotonic, now=_now, new_id=_id_source())


def make_admin(
    settings: Settings,
    broker: Broker,
    journal: RequestJournal,
    listener: Listener,
    processes: ServingProcesses | None = None,
) -> AdminRunner:
    """The admin API on this process or on several, to be mounted.

    Raises ConfigError where it would be open to others.
    """
    application = make_application(
        broker,
        journal,
        processes,
        token=settings.admin_token.get_secret_value() if settings.admin_token else None,
        listener=(listener.host, listener.port),
        version=VERSION,
    )
    return AdminRunner(application, shutdown_timeout=GRACE_S)


def starting() -> None:
    """Tune the interpreter for what is to come."""
    # What a cassette holds stays, and what a request makes is nearly all freed by counting: the
    # collector need not look after every few of them.
    gc.set_threshold(20_000, 20, 20)


def started() -> None:
    """Tune it for what goes on from now on."""
    # What is loaded now stays; the collector need not walk it again and again.
    gc.freeze()
    sys.setswitchinterval(_TURN_S)


def _tls(settings: Settings) -> ssl.SSLContext | bool:
    if settings.insecure_upstream:
        return False
    if settings.upstream_ca is None:
        return True
    try:
        context = ssl.create_default_context()
        context.load_verify_locations(settings.upstream_ca)
    except OSError as exc:
        raise ConfigError(
            f"--upstream-ca {settings.upstream_ca} cannot be read as PEM certificates"
        ) from exc
    return context


def _new_head() -> CassetteHead:
    return CassetteHead(
        created_at=datetime.now(UTC).isoformat(),
        run_id=str(uuid.uuid4()),
        meta={"tapeway_version": VERSION},
    )


def _id_source() -> Callable[[], str]:
    prefix, numbers = secrets.token_hex(4), itertools.count(1)
    return lambda: f"tw-{prefix}-{next(numbers)}"


def _now() -> float:
    return datetime.now(UTC).timestamp()
