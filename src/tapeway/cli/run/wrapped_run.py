"""Runs a command with a proxy around it, and ejects the cassettes of the command."""

import asyncio
import os
import signal
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

import uvloop

from tapeway.admin.handlers.control import reported_cassette
from tapeway.cli.run.forward_proxy import ForwardProxy, Interception, listening
from tapeway.cli.run.google_login import TOKEN_TARGET, VARIABLE, token, write_login
from tapeway.cli.run.trust import BUNDLE_VARIABLES, UNSET_VARIABLES, bundle
from tapeway.core.http.routing import RouteTable
from tapeway.core.model.cassette import StoredCassette
from tapeway.descriptors import restore_descriptor_limit
from tapeway.embedded.admin_client import AdminClient
from tapeway.embedded.client_variables import DUMMY_KEY
from tapeway.engine.broker import Broker
from tapeway.engine.journal import RequestJournal
from tapeway.engine.report.summary import CassetteReport, Isolation
from tapeway.errors import (
    CassetteCorrupt,
    CassetteEdited,
    CassetteLocked,
    CommandNotFound,
    ConfigError,
    StoreError,
    TapewayError,
)
from tapeway.html_report.collection import ReportLimits
from tapeway.html_report.page import collected_page
from tapeway.providers.hosts import HostRoutes, RoutedHost
from tapeway.server.front import FrontServer
from tapeway.server.lifecycle import Service, serving
from tapeway.server.wiring import trusting
from tapeway.settings.client_environment import client_environment, kept_past_proxy
from tapeway.settings.options import Settings
from tapeway.settings.sources import file_variable_of, variable_of
from tapeway.upstream.outer_proxy import proxy_choice

FREE_PORTS = {"listen": "127.0.0.1:0", "admin_listen": "127.0.0.1:0"}
"""Flags of a proxy whose ports the system chooses."""

_STORE_ERRORS = {
    error.code for error in (StoreError, CassetteCorrupt, CassetteLocked, CassetteEdited)
}
_TOKENS = frozenset(
    [
        name_of(option)
        for option in ("admin_token", "store_token")
        for name_of in (variable_of, file_variable_of)
    ]
)
"""The variables that the command does not get: with such variables the command could read and change every cassette."""

_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class WrappedRun:
    """A command to run, and how. The command's output goes to `stdout` if given.

    `prune` drops recordings that a clean run did not use, in cassettes with at least one replay.
    `namespace` is None where the command may use the network, or else whether this process is in a
    separate network namespace.
    """

    command: Sequence[str]
    environ: Mapping[str, str]
    stdout: IO[str] | None = None
    prune: bool = False
    namespace: bool | None = None
    tls: bool = False
    """Serve requests that the command sends directly to services, by the services' names."""
    keeps_ejected: bool = False
    """Read the cassettes that the command ejected itself, too."""
    page: ReportLimits | None = None
    """Make a page of the run within these limits; none if None."""


@dataclass(frozen=True, slots=True)
class FinishedCommand:
    """How a command ended, and the cassettes it used.

    `code` is the exit code, or 128 and the number of the signal that ended the command. `failures`
    are the reasons why answers or cassettes could not be stored. `absent` are asked cassettes that
    do not exist. `pruned` is the number of dropped recordings by cassette.
    """

    code: int
    reports: tuple[CassetteReport, ...]
    cassettes: Mapping[str, StoredCassette]
    failures: tuple[str, ...] = ()
    connections: int = 0
    absent: tuple[str, ...] = ()
    pruned: Mapping[str, int] | None = None
    isolation: Isolation | None = None
    page: str | None = None
    """The run as one HTML file, if it was asked for and could be made."""
    page_fault: str | None = None
    """Why it could not be made."""

    @property
    def clean(self) -> bool:
        """Whether the command succeeded, nothing was missed, everything was kept, nobody bypassed."""
        bypassed = self.isolation is not None and self.isolation.violations
        return not (
            self.code or self.failures or bypassed or any(report.missed for report in self.reports)
        )


def run_wrapped(settings: Settings, run: WrappedRun) -> FinishedCommand:
    """Run a command whose SDKs are pointed at a proxy, and eject the cassettes it used.

    Raises ConfigError for a command that cannot be started, and what `serve` raises.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run_with_proxy(settings, run))


async def _run_with_proxy(settings: Settings, run: WrappedRun) -> FinishedCommand:
    failures: list[str] = []
    try:
        async with serving(settings) as service, asyncio.TaskGroup() as tasks:
            tasks.create_task(_collect_store_errors(service.journal, failures))
            # By a test runner's plugin, for one.
            ejected: list[CassetteReport] = []
            service.broker.on_eject = lambda report: (
                ejected.append(report) if report.requests else None
            )
            async with _surroundings(settings, service, run) as (environ, forward):
                code = await _run_process(run, environ)
            isolation = None
            if forward is not None and (forward.hosts or run.namespace is not None):
                isolation = Isolation(run.namespace, forward.hosts)
            service.broker.on_eject = lambda report: None
            finished = await _finished(settings, service, run, code, isolation, failures, ejected)
            # This also ends the task above, after the last entry.
            service.journal.close()
    except ExceptionGroup as group:
        # The task raises nothing: the group holds the error that ended the run.
        raise group.exceptions[0] from None
    return finished


@asynccontextmanager
async def _surroundings(
    settings: Settings, service: Service, run: WrappedRun
) -> AsyncIterator[tuple[Mapping[str, str], ForwardProxy | None]]:
    """The environment of the command, and the proxy that the proxy variables name, if any."""
    kept = {name: value for name, value in run.environ.items() if name not in _TOKENS}
    with _google_login(settings, service, run) as login:
        async with _environment_of_proxy(settings, service, run, {**kept, **login}) as surroundings:
            yield surroundings


@contextmanager
def _google_login(
    settings: Settings, service: Service, run: WrappedRun
) -> Iterator[Mapping[str, str]]:
    """The variable of Google's credentials, for a replay that has none or could not use them."""
    has_one = bool(run.environ.get(VARIABLE)) and run.namespace is None
    if settings.mode != "replay" or not _leads_to_vertex(service.broker.routes) or has_one:
        yield {}
        return
    service.proxy.own_answers[TOKEN_TARGET] = token(DUMMY_KEY)
    with tempfile.TemporaryDirectory(prefix="tapeway-run-") as folder:
        project = run.environ.get("GOOGLE_CLOUD_PROJECT")
        yield {VARIABLE: str(write_login(Path(folder), service.url, project))}


def _leads_to_vertex(table: RouteTable) -> bool:
    return any(route.name == "vertex" for route in table)


@asynccontextmanager
async def _environment_of_proxy(
    settings: Settings, service: Service, run: WrappedRun, kept: Mapping[str, str]
) -> AsyncIterator[tuple[Mapping[str, str], ForwardProxy | None]]:
    """The variables that lead the command to the proxy, and the forward proxy if one runs."""
    admin = service.admin.listener.url if service.admin is not None else None
    if not run.tls and run.namespace is None:
        yield {**kept, **client_environment(settings, service.url, admin, kept)}, None
        return
    changed = client_environment(settings, service.url, admin, kept, intercepted=run.tls)
    offline = run.namespace is not None
    if not run.tls:
        async with listening(ForwardProxy(offline=offline)) as forward:
            yield {**kept, **changed, **forward.variables}, forward
        return
    # Only here: most runs do without certificates.
    from tapeway.cli.run.authority import Authority

    hosts = HostRoutes(service.broker.routes, run.environ)
    authority = Authority(hosts.names())
    with tempfile.TemporaryDirectory(prefix="tapeway-run-") as folder:
        file = Path(folder) / "authorities.pem"
        file.write_bytes(bundle(authority.pem, kept))
        forward = _forward_proxy(settings, service, hosts, authority.context_for, offline=offline)
        async with listening(forward):
            named = dict.fromkeys(BUNDLE_VARIABLES, str(file))
            reached = kept_past_proxy(changed, hosts)
            environ = {**kept, **changed, **reached, **forward.variables, **named, **_FOLLOWS}
            yield {name: environ[name] for name in environ.keys() - UNSET_VARIABLES}, forward


_FOLLOWS = {"NODE_USE_ENV_PROXY": "1", "AIOHTTP_TRUST_ENV": "True"}
"""Variables by which Node.js, and LiteLLM for aiohttp, follow the proxy variables."""


def _forward_proxy(
    settings: Settings,
    service: Service,
    hosts: HostRoutes,
    context_for: Callable[[str], ssl.SSLContext],
    *,
    offline: bool,
) -> ForwardProxy:
    proxy = service.proxy

    def server_of(host: RoutedHost) -> FrontServer:
        handle = proxy.serving_for(host, hosts)
        return FrontServer(handle, settings.send_timeout, None, proxy.refused)

    return ForwardProxy(
        offline=offline,
        interception=Interception(hosts, server_of, context_for),
        # The variables of this process: those of the command name the new proxy.
        outer=proxy_choice(settings.upstream_proxy, os.environ).proxy_for,
        outer_tls=partial(trusting, settings.upstream_ca),
        connect_s=settings.connect_timeout,
    )


async def _page(
    settings: Settings, service: Service, run: WrappedRun, reports: Sequence[CassetteReport]
) -> str | None:
    """The run as an HTML file, made of what the admin API says while the cassettes are loaded.

    Raises TapewayError.
    """
    if run.page is None or service.admin is None:
        return None
    token = settings.admin_token
    certificate = settings.tls_cert if settings.admin_tls else None
    client = AdminClient(service.admin.listener.url, token, certificate=certificate)
    documents = [reported_cassette(report).model_dump(mode="json") for report in reports]
    return await asyncio.to_thread(collected_page, client, run.page, documents)


async def _finished(
    settings: Settings,
    service: Service,
    run: WrappedRun,
    code: int,
    isolation: Isolation | None,
    failures: list[str],
    ejected: list[CassetteReport],
) -> FinishedCommand:
    """Eject all cassettes that were not yet, and gather what there is to say."""
    broker = service.broker
    try:
        reports = await broker.reports()
    except TapewayError as exc:
        reports = []
        failures.append(exc.message)
    known = (*ejected, *reports)
    page, page_fault = None, None
    try:
        page = await _page(settings, service, run, known)
    except TapewayError as exc:
        page_fault = exc.message
    before = FinishedCommand(code, known, {}, tuple(failures), isolation=isolation)
    prune = (
        {report.name for report in reports if report.replayed}
        if run.prune and before.clean
        else set()
    )
    cassettes = await _stored(broker, ejected) if run.keeps_ejected else {}
    absent: list[str] = []
    for report in reports:
        try:
            ejected.append(await broker.eject(report.name, prune=report.name in prune))
            if (stored := await broker.source.read(report.name)) is not None:
                cassettes[report.name] = stored
            elif report.requests > report.failures:
                absent.append(report.name)
        except TapewayError as exc:
            failures.append(exc.message)
    return FinishedCommand(
        code,
        tuple(ejected),
        cassettes,
        tuple(failures),
        connections=broker.recorder.responder.connections,
        absent=tuple(absent),
        pruned={report.name: len(report.unused) for report in ejected if report.name in prune},
        isolation=isolation,
        page=page,
        page_fault=page_fault,
    )


async def _stored(broker: Broker, ejected: Iterable[CassetteReport]) -> dict[str, StoredCassette]:
    """The cassettes that were ejected while the command ran. Raises TapewayError."""
    cassettes = {report.name: await broker.source.read(report.name) for report in ejected}
    return {name: cassette for name, cassette in cassettes.items() if cassette is not None}


async def _run_process(run: WrappedRun, environ: Mapping[str, str]) -> int:
    loop = asyncio.get_running_loop()
    process: asyncio.subprocess.Process | None = None
    early: list[signal.Signals] = []

    def pass_on(number: signal.Signals) -> None:
        if process is None:
            early.append(number)
        elif process.returncode is None and not (number == signal.SIGINT and _at_terminal()):
            process.send_signal(number)

    for number in _PASSED_ON:
        loop.add_signal_handler(number, pass_on, number)
    try:
        process = await _start(run, environ)
        for number in early:
            pass_on(number)
        code = await process.wait()
    finally:
        for number in _PASSED_ON:
            loop.remove_signal_handler(number)
    return code if code >= 0 else 128 - code


async def _start(run: WrappedRun, environ: Mapping[str, str]) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *run.command,
            env=environ,
            stdout=run.stdout,
            preexec_fn=restore_descriptor_limit,
        )
    except FileNotFoundError as exc:
        raise CommandNotFound(
            f"{run.command[0]} cannot be started: there is no such program"
        ) from exc
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "its name holds a NUL"
        raise ConfigError(f"{run.command[0]} cannot be started: {reason}") from exc


def _at_terminal() -> bool:
    """Whether the terminal itself sends Ctrl-C to the command, which is in the same process group."""
    try:
        tty = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(tty) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(tty)


async def _collect_store_errors(journal: RequestJournal, failures: list[str]) -> None:
    """Add why answers could not be recorded, each cause once, until the journal closes."""
    with journal.follow() as entries:
        while (entry := await entries.get()) is not None:
            code, _, cause = (entry.message or "").partition(": ")
            if entry.outcome == "error" and code in _STORE_ERRORS and cause not in failures:
                failures.append(cause)
