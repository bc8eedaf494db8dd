"""The way to a master that Redis Sentinel watches: asked for whenever a connection is needed, and checked by ROLE.

What a failover costs is Sentinel's own bargain: a grant that had not reached the new master is forgotten there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

from redis import exceptions as theirs

from sidecar.config.redis_urls import HostList, host_list
from sidecar.store.access import Access
from sidecar.store.link import NoMasterError, error_word
from sidecar.store.wire import FAILURES, Address, Dialler, Wire

_TELLING = ("auth", "permission", "tls")  # more of the cause than that a Sentinel is of no use


class SentinelRoute:
    """The route to the master of the URL; arguments and errors as ``Link`` has them."""

    def __init__(self, url: str, connect_timeout_s: float, access: Access) -> None:
        place = host_list(url)
        self._name, *db = place.path
        self._sentinels = deque(place.hosts)
        self._share_s = connect_timeout_s / (len(place.hosts) + 1)
        self._to_sentinel = Dialler(_sentinel_url(place), self._share_s, replace(access, password_file=""))
        self._to_master = Dialler(_master_url(place, db), self._share_s, access)
        self._wire: Wire | None = None

    async def exchange(self, *command: str | bytes) -> Any:
        """The master's reply."""
        if self._wire is None or not await self._wire.ready():
            self._wire = await self._find()
        return await self._wire.exchange(*command)

    async def drop(self) -> None:
        """End it; the next exchange asks the Sentinels anew."""
        if self._wire is not None:
            await self._wire.drop()

    async def aclose(self) -> None:
        """End it in good order."""
        if self._wire is not None:
            await self._wire.aclose()

    async def _find(self) -> Wire:
        """Ask one Sentinel after the other until one names a master that says so itself.

        One that answered well is asked first the next time. The first failure at a named master is told rather than
        that another Sentinel was silent.
        """
        failures: list[Exception] = []
        tried: set[Address] = set()
        for sentinel in tuple(self._sentinels):
            try:
                address = await self._named_by(sentinel)
                if address not in tried:
                    tried.add(address)
                    return await self._master_at(address)
            except FAILURES as error:
                failures.append(error)
            self._sentinels.rotate(-1)
        raise next((error for error in failures if not isinstance(error, NoMasterError)), failures[0])

    async def _named_by(self, sentinel: Address) -> Address:
        wire = self._to_sentinel.wire(*sentinel)
        try:
            async with asyncio.timeout(self._share_s):
                reply = await wire.exchange("SENTINEL", "get-master-addr-by-name", self._name)
        except FAILURES as error:
            if error_word(error) in _TELLING:
                raise
            raise NoMasterError("the Sentinel gives no answer") from None
        finally:
            await wire.drop()
        match reply:
            case [bytes(host), bytes(port)] if port.isdigit():
                return host.decode(), int(port)
        raise NoMasterError("the Sentinel knows no master of this name")

    async def _master_at(self, address: Address) -> Wire:
        wire = self._to_master.wire(*address)
        try:
            async with asyncio.timeout(self._share_s):
                _check_master(await wire.exchange("ROLE"))
        except BaseException:
            await wire.drop()
            raise
        return wire


def _check_master(role: object) -> None:
    match role:
        case [b"master", *_]:
            return
    raise theirs.ReadOnlyError("a Sentinel named a replica")


def _sentinel_url(place: HostList) -> str:
    """The options of TLS are for the Sentinels as well, the login is not."""
    options = [(name.removeprefix("sentinel_"), value) for name, value in _options(place, "ssl_", "sentinel_")]
    return f"{_scheme(place)}localhost?{urlencode(options)}"


def _master_url(place: HostList, db: list[str]) -> str:
    login = f"{place.login}@" if place.login else ""
    options = _options(place, "ssl_", "db", "username", "password")
    return f"{_scheme(place)}{login}localhost/{''.join(db)}?{urlencode(options)}"


def _scheme(place: HostList) -> str:
    return "rediss://" if place.secure else "redis://"


def _options(place: HostList, *names: str) -> list[tuple[str, str]]:
    return [(name, value) for name, value in parse_qsl(place.query) if name.startswith(names)]
