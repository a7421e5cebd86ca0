"""The addresses that an upstream's host name may resolve to.

An address in the configuration (`http://10.0.0.5`, `http://localhost`) is deliberate. A name is
resolved, and the owner of the name's DNS could point the proxy at this machine or at a cloud's
metadata service. A name must not resolve to a loopback or link-local address, and the name of a
public provider not to a private address.
"""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


def refusal(address: Address, *, public_only: bool, allowed: Sequence[Network]) -> str | None:
    """Why a resolved address may not be connected to, as one word, or None if it may."""
    address = _plain(address)
    if any(address in network for network in allowed if network.version == address.version):
        return None
    if address.is_loopback:
        return "loopback"
    if address.is_link_local:
        return "link-local"
    if address.is_multicast or address.is_unspecified:
        return "not a host's"
    if public_only and not address.is_global:
        return "private"
    return None


def same_host(address: Address, bound: Address) -> bool:
    """Whether connecting to an address reaches a listener bound to `bound`."""
    address, bound = _plain(address), _plain(bound)
    # Connecting to the unspecified address reaches this machine.
    if address.is_unspecified:
        return bound.is_loopback or bound.is_unspecified
    return address == bound or (bound.is_unspecified and address.is_loopback)


def is_loopback(host: str) -> bool:
    """Whether a host is certainly this machine; no name but localhost is."""
    if host.lower() == "localhost":
        return True
    address = address_of(host)
    return address is not None and _plain(address).is_loopback


def address_of(host: str) -> Address | None:
    """The IP address that a host is; None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def _plain(address: Address) -> Address:
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
