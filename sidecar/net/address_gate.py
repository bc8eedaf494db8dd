"""Limits a listener to the addresses of its known clients. Any other connection is closed before it is read."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

Network = IPv4Network | IPv6Network

LOOPBACK: Final = (IPv4Network("127.0.0.0/8"), IPv6Network("::1/128"))
_MAPPED: Final = IPv6Network("::ffff:0:0/96")
"""The IPv6 addresses of IPv4 clients at a socket for both (RFC 4291, section 2.5.5.2)."""

_CACHED: Final = 1024
"""Number of addresses whose answer is kept."""


class AddressGate:
    """Admits connections from ``networks``, from loopback, and from this machine to the address of its listener.

    The last are the checks of a scheduler that runs on this machine. ``on_refusal`` is called for each other one.
    """

    def __init__(self, networks: Sequence[Network], on_refusal: Callable[[], None]) -> None:
        self._networks = (*LOOPBACK, *networks)
        self._on_refusal = on_refusal
        self.lists = lru_cache(_CACHED)(self._lists)

    def admits(self, connection: socket.socket, host: str) -> bool:
        """Whether to serve this TCP connection of a client at ``host``."""
        if self.lists(host) or host == connection.getsockname()[0]:
            return True
        self._on_refusal()
        return False

    def _lists(self, host: str) -> bool:
        """Whether an address is in one of the networks, or loopback."""
        address = _plain(ip_address(host))
        return any(address in network for network in self._networks)


def parse_networks(text: str) -> tuple[Network, ...]:
    """Read addresses and networks with commas between, IPv4 or IPv6. Raises ValueError, which names the bad item."""
    return tuple(_network(item) for part in text.split(",") if (item := part.strip()))


def written(networks: Sequence[Network]) -> str:
    """The networks as text in their one normal form; a network of one address is written as this address."""
    return ",".join(str(each.network_address if each.num_addresses == 1 else each) for each in networks)


def _network(item: str) -> Network:
    try:
        if "%" in item:
            raise ValueError("a zone")  # noqa: TRY301 - the sentence below is for this, too
        network = ip_network(item, strict=False)
    except ValueError:
        hint = "write 10.0.0.5, 10.1.0.0/16 or fd00::/8, with commas between"
        raise ValueError(f"has {item[:64]!r}, which is no IP address and no network: {hint}") from None
    if network.network_address != ip_address(item.partition("/")[0]):
        raise ValueError(f"has {item[:64]!r}, whose address is not the first of its network: write {network}")
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        return IPv4Network((_plain(network.network_address), network.prefixlen - _MAPPED.prefixlen))
    return network


def _plain(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address for an IPv6 address that stands for one."""
    return (address.ipv4_mapped if isinstance(address, IPv6Address) else None) or address
