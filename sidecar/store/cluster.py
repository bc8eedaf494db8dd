"""The way to the node of a Redis Cluster that owns our slot: remembered, and followed when it moves.

All keys of a service have one hash tag, so one node has them all. Which one is learnt from redirects; a command
without a key (SCRIPT LOAD) goes to the present owner, which may be the wrong node until the first command with one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import Any, Final

from redis import exceptions as theirs

from sidecar.config.redis_urls import host_list
from sidecar.store.access import Access
from sidecar.store.wire import FAILURES, Address, Dialler, Wire

_MOST_REDIRECTS: Final = 5


class ClusterRoute:
    """The route to the owner of our slot; arguments and errors as ``Link`` has them."""

    def __init__(self, url: str, connect_timeout_s: float, access: Access) -> None:
        place = host_list(url)
        self._seeds = deque(place.hosts)
        self._share_s = connect_timeout_s / (len(place.hosts) + 1)
        scheme, login = "rediss" if place.secure else "redis", f"{place.login}@" if place.login else ""
        self._dialler = Dialler(f"{scheme}://{login}localhost?{place.query}", self._share_s, access)
        self._owner: Address | None = None
        self._wires: dict[Address, Wire] = {}

    async def exchange(self, *command: str | bytes) -> Any:
        """The reply of the node that is responsible, after at most five redirects."""
        try:
            return await self._follow(command)
        except BaseException as error:
            if not isinstance(error, theirs.ResponseError) or isinstance(error, theirs.ClusterError):
                self._forget_owner()  # what answers in its own words is there, all else may be gone
            raise

    async def drop(self) -> None:
        """End all connections."""
        while self._wires:
            await self._wires.popitem()[1].drop()

    async def aclose(self) -> None:
        """End all connections in good order."""
        while self._wires:
            await self._wires.popitem()[1].aclose()

    async def _follow(self, command: tuple[str | bytes, ...]) -> Any:
        address, asking = await self._start(), False
        for _ in range(1 + _MOST_REDIRECTS):
            wire = self._wires[address]
            try:
                if asking:
                    await wire.exchange("ASKING")
                return await wire.exchange(*command)
            except theirs.AskError as redirect:  # in redis-py a MOVED is one as well
                asking = not isinstance(redirect, theirs.MovedError)
                address = _target(redirect, address)
            await self._open(address)
            if not asking:
                self._owner = address
        raise theirs.ClusterError("sent from node to node")

    async def _start(self) -> Address:
        """The owner that we remember, else the first seed that answers."""
        failures: list[Exception] = []
        for address in dict.fromkeys((self._owner or self._seeds[0], *self._seeds)):
            try:
                await self._open(address)
            except FAILURES as error:
                failures.append(error)
            else:
                self._owner = address
                return address
        raise failures[-1]

    async def _open(self, address: Address) -> None:
        """Have a wire to that node. Besides it only the owner's is kept: two are enough for any slot that moves."""
        wire = self._wires.get(address)
        if wire is not None and await wire.ready():
            return
        for other in self._wires.keys() - {self._owner}:
            await self._wires.pop(other).drop()
        self._wires[address] = wire = self._dialler.wire(*address)
        # A node that hangs takes connections and says nothing; what one says is of no interest, be it an error.
        with contextlib.suppress(theirs.ResponseError):
            async with asyncio.timeout(self._share_s):
                await wire.exchange("ROLE")

    def _forget_owner(self) -> None:
        self._owner = None
        self._seeds.rotate(-1)


def _target(redirect: theirs.AskError, told_by: Address) -> Address:
    """The node to go to; one that names no host, or none that it knows, means its own."""
    host, port = redirect.node_addr
    return (host if host not in ("", "?") else told_by[0]), port
