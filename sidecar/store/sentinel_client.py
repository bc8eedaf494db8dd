"""The master that Redis Sentinel watches: every new connection asks a Sentinel for it, and checks it by ROLE.

A failover has its price: the new master may lack the last grants of the old one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import aclosing

from redis import exceptions as theirs
from redis.asyncio.connection import ConnectionPool, parse_url
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel, SentinelConnectionPool, SentinelManagedConnection

from sidecar.config.redis_urls import HostList
from sidecar.store.access import Access
from sidecar.store.certificates import TlsConnection
from sidecar.store.connection_watch import ConnectionWatch
from sidecar.store.redis_connection import FAILURES, Client, InStep, Options, client_of, options_of
from sidecar.store.redis_errors import error_word

_CAUSES = ("auth", "permission", "tls")
"""Errors that say more than that a Sentinel gives no answer."""


def master_client(place: HostList, share_s: float, access: Access, watch: ConnectionWatch) -> Client:
    """A client of the master. Each Sentinel, and the check of a master, gets ``share_s``.

    ``watch`` is told of the connections to the master.

    The options of TLS in the URL are for the Sentinels as well, the login and the password file are not.
    """
    parsed: Options = dict(parse_url(f"{place.scheme}://{place.login}@/{''.join(place.path[1:])}?{place.query}"))
    common = {name: value for name, value in parsed.items() if name.startswith(("ssl_", "connection_class"))}
    of_master = {name: value for name, value in parsed.items() if not name.startswith("sentinel_")}
    of_sentinel = {name.removeprefix("sentinel_"): parsed[name] for name in parsed.keys() - of_master.keys()}
    certificates = Access("", access.ca, access.cert, access.key)
    master = options_of(of_master, share_s, access)
    sentinels = _Sentinels(place.hosts, options_of(common | of_sentinel, share_s, certificates), master, share_s)
    kind = _MasterTls if "certificates" in master else _MasterTcp
    options = {**master, "connection_class": kind, "parser_class": watch.parser}
    return client_of(SentinelConnectionPool(place.path[0], sentinels, **options))  # type: ignore[no-untyped-call]


class _MasterTcp(InStep, SentinelManagedConnection):
    pass


class _MasterTls(InStep, SentinelManagedConnection, TlsConnection):
    pass


class _Sentinels(Sentinel):
    """Accepts only a node that reports itself as the master."""

    def __init__(
        self, hosts: Sequence[tuple[str, int]], of_sentinels: Options, of_master: Options, share_s: float
    ) -> None:
        super().__init__([])  # type: ignore[no-untyped-call]
        self._clients = deque(client_of(ConnectionPool(**of_sentinels, host=host, port=port)) for host, port in hosts)
        self._of_master = dict(of_master)
        self._share_s = share_s

    async def discover_master(self, service_name: str) -> tuple[str, int]:
        """Ask one Sentinel after the other, first the one with the last good answer.

        A failure at a named master is raised rather than the silence of another Sentinel.
        """
        failures: list[Exception] = []
        tried: set[tuple[str, int]] = set()
        for sentinel in tuple(self._clients):
            try:
                address = await self._ask(sentinel, service_name)
                if address not in tried:
                    tried.add(address)
                    await self._check(address)
                    return address
            except FAILURES as error:
                failures.append(error)
            self._clients.rotate(-1)
        raise next((error for error in failures if not isinstance(error, MasterNotFoundError)), failures[0])

    async def _ask(self, sentinel: Client, name: str) -> tuple[str, int]:
        try:
            async with asyncio.timeout(self._share_s), aclosing(sentinel):
                reply = await sentinel.execute_command("SENTINEL", "get-master-addr-by-name", name)
        except FAILURES as error:
            if error_word(error) in _CAUSES:
                raise
            raise MasterNotFoundError("the Sentinel gives no answer") from None
        match reply:
            case [bytes(host), bytes(port)] if port.isdigit():
                return host.decode(), int(port)
        raise MasterNotFoundError("the Sentinel knows no master of this name")

    async def _check(self, address: tuple[str, int]) -> None:
        host, port = address
        async with asyncio.timeout(self._share_s):
            async with aclosing(client_of(ConnectionPool(**self._of_master, host=host, port=port))) as node:
                role = await node.execute_command("ROLE")
        if not (isinstance(role, list) and role[:1] == [b"master"]):
            raise theirs.ReadOnlyError("a Sentinel named a replica")
