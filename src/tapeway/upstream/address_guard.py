"""Checks the addresses of an upstream's name before a connection is opened."""

import ipaddress
import socket
from collections.abc import Sequence

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from tapeway.core.http.addresses import Address, Network, refusal, same_host
from tapeway.errors import UpstreamError


class AddressGuard(AbstractResolver):
    """A resolver for aiohttp's connector that raises UpstreamError for addresses not allowed."""

    def __init__(
        self,
        public_hosts: frozenset[str],
        allowed: Sequence[Network],
        resolver: AbstractResolver | None = None,
    ) -> None:
        self._resolver = resolver or aiohttp.ThreadedResolver()
        self._public_hosts = public_hosts
        self._allowed = tuple(allowed)
        self.own: frozenset[tuple[str, int]] = frozenset()
        """Host and port of tapeway's listeners, which are refused as upstreams."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        results = await self._resolver.resolve(host, port, family)
        for result in results:
            self.check(host, result["host"], port)
        return results

    async def close(self) -> None:
        await self._resolver.close()

    def check_written(self, url: URL) -> None:
        """Raise UpstreamError for an address that is written in a URL: aiohttp resolves none."""
        host = url.raw_host or ""
        try:
            ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return
        self.check(host, host, url.port or 0)

    def check(self, host: str, address: str, port: int) -> None:
        """Raise UpstreamError for an address that `host` must not resolve to."""
        ip = ipaddress.ip_address(address.partition("%")[0])
        if self._is_own(ip, port):
            raise UpstreamError(
                f"the upstream {host}:{port} is this proxy itself; give another --upstream",
                status=508,
                code="upstream_loop",
            )
        if host == "localhost" or host == address:
            return
        public_only = host in self._public_hosts
        if kind := refusal(ip, public_only=public_only, allowed=self._allowed):
            raise UpstreamError(
                f"the upstream name {host} resolves to {address}, a {kind} address; "
                f"if that is intended, allow it with --allow-address {address}",
                code="upstream_address",
            )

    def _is_own(self, ip: Address, port: int) -> bool:
        for address, own_port in self.own:
            if port != own_port:
                continue
            bound = ipaddress.ip_address(address.partition("%")[0])
            if same_host(ip, bound) or (bound.is_unspecified and _is_local_address(ip)):
                return True
        return False


def _is_local_address(ip: Address) -> bool:
    family = socket.AF_INET if ip.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(ip), 0))
    except OSError:
        return False
    return True
