"""The network of a company, for `tapeway run --tls`: its proxy, its authority, the services behind both.

Services are reached by their own names, through the proxy alone.
"""

import asyncio
import json
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, urlsplit

import trustme

from tapeway.testing import Received, StandIn
from tests.process.serving import DEADLINE_S
from tests.support import fork_server
from tests.support.canary import canary
from tests.support.forward_proxy import ForwardProxy, basic, pump

HOSTS = (
    *("api.openai.com", "api.anthropic.com", "generativelanguage.googleapis.com"),
    *("bedrock-runtime.us-east-1.amazonaws.com", "aiplatform.googleapis.com"),
    *("telemetry.example.com", "svc.example.com"),
)
KEYS = {
    "OPENAI_API_KEY": "sk-0123456789abcdefghijklmnop",
    "ANTHROPIC_API_KEY": "sk-ant-0123456789abcdefghij",
    "GEMINI_API_KEY": "AIzaSyA0123456789abcdefghijklmnopqrstu",
    "GOOGLE_GENERATIVE_AI_API_KEY": "AIzaSyB0123456789abcdefghijklmnopqrstu",
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
}
REGION = {"AWS_DEFAULT_REGION": "us-east-1", "AWS_REGION": "us-east-1"}
SURROUNDINGS = ("PATH", "HOME", "LANG")
"""What programs get of this process's environment."""


@dataclass(frozen=True, slots=True)
class Finished:
    """How a run ended, and its report."""

    code: int
    out: str
    err: str
    report: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Network:
    """Runs programs in this network, or with `offline` away from it."""

    folder: Path
    """Where the store, the report and the company's authority are."""
    services: StandIn | None = None
    proxy: ForwardProxy | None = None
    password: str = ""

    @property
    def asked(self) -> list[Received]:
        """The requests that reached the services."""
        return [] if self.services is None else self.services.requests

    @property
    def tunnels(self) -> list[bytes]:
        """The first lines of the requests to the company's proxy."""
        return [] if self.proxy is None else self.proxy.asked

    @property
    def way_out(self) -> dict[str, str]:
        """The proxy variables of a machine in this network."""
        if self.proxy is None:
            return {}
        return {"HTTPS_PROXY": self.proxy.url_of("bob", quote(self.password, safe=""))}

    async def run(
        self,
        *arguments: str,
        offline: bool = False,
        environ: Mapping[str, str] = MappingProxyType({}),
        cwd: Path | None = None,
    ) -> Finished:
        """`tapeway run --tls` with these arguments; the keys are known to live runs alone."""
        kept = {name: os.environ[name] for name in SURROUNDINGS if name in os.environ}
        live = {} if offline else {**self.way_out, **KEYS}
        process = await asyncio.create_subprocess_exec(
            *(*fork_server.command(), "run", "--tls", f"--store={self.folder}/cassettes"),
            f"--report={self.folder}/report.json",
            *(("--offline",) if offline else ("--upstream-ca", str(self.folder / "company.pem"))),
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=cwd or self.folder,
            env={**kept, **REGION, **live, **environ},
        )
        async with asyncio.timeout(DEADLINE_S):
            out, err = await process.communicate()
        report = json.loads((self.folder / "report.json").read_text())
        return Finished(process.returncode or 0, out.decode(), err.decode(), report)


@asynccontextmanager
async def company(
    folder: Path, *more_hosts: str, others: Mapping[str, int] = MappingProxyType({})
) -> AsyncIterator[Network]:
    """The network around a stand-in, whose services have these hosts too.

    `others` are hosts of further services, which listen on these ports without TLS.
    """
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "company.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    hosts = (*HOSTS, *more_hosts)
    authority.issue_cert(*hosts, *others).configure_cert(context)
    password = canary()
    async with AsyncExitStack() as stack:
        services = await stack.enter_async_context(StandIn())
        ports = {**dict.fromkeys(hosts, urlsplit(services.url).port or 0), **others}
        served = {
            port: await stack.enter_async_context(behind_tls(port, context))
            for port in set(ports.values())
        }
        places = {host: served[port] for host, port in ports.items()}
        proxy = await stack.enter_async_context(ForwardProxy(places, login=basic("bob", password)))
        yield Network(folder, services, proxy, password)


@asynccontextmanager
async def behind_tls(port: int, context: ssl.SSLContext) -> AsyncIterator[int]:
    """A listener that speaks TLS, and passes what it gets on to another port."""

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.TaskGroup() as both:
            both.create_task(pump(reader, there[1]))
            both.create_task(pump(there[0], writer))

    server = await asyncio.start_server(pass_on, "127.0.0.1", 0, ssl=context)
    yield server.sockets[0].getsockname()[1]
    server.close()
