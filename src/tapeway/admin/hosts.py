"""By which names the admin listener may be called.

A page of an attacker can let its own name lead to this machine (DNS rebinding) and then ask us as
if we were its own server. An address in the Host header cannot be had that way, nor can a name
that public DNS does not hold.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Self

from tapeway.settings.parsers import is_loopback

_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::[0-9]{0,5})?")
_PRIVATE = (".localhost", ".local", ".internal", ".svc")
"""Reserved or never given out: mDNS, container networks, clusters."""


@dataclass(frozen=True, slots=True)
class HostList:
    """Names and addresses that lead here on purpose."""

    named: frozenset[str]
    beyond_loopback: bool

    @classmethod
    def of(cls, host: str, more: Collection[str] = ()) -> Self:
        """Those of a listener bound to this host, and more names it is known by."""
        return cls(frozenset(each.lower() for each in (host, *more)), not is_loopback(host))

    def allows(self, header: str) -> bool:
        """Whether a Host header names this listener; its port may be another, mapped one."""
        match = _HOST.fullmatch(header)
        if match is None:
            return False
        host = (match["v6"] or match["name"]).lower().removesuffix(".")
        if host in self.named or is_loopback(host) or host.endswith(".localhost"):
            return True
        return self.beyond_loopback and _private(host)


def _private(host: str) -> bool:
    if host.endswith(_PRIVATE):
        return True
    try:
        ip_address(host)
    except ValueError:
        return "." not in host
    return True
