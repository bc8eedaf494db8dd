"""The client of one Redis: at a fixed address, at the master that Sentinels name, or in a Cluster.

This is redis-py without its retries: a second attempt inside the library could charge a claim twice. Every failure is
raised at once and ends the connection, so that a late reply is never read as the answer to another command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from redis.asyncio.connection import ConnectionPool, parse_url
from redis.exceptions import NoScriptError, RedisError

from sidecar.config.redis_urls import host_list
from sidecar.store.access import NO_FILES, Access, AccessError
from sidecar.store.cluster_client import ClusterClient
from sidecar.store.connection_watch import ConnectionWatch
from sidecar.store.protocol import StoreError
from sidecar.store.redis_connection import FAILURES, Client, client_of, options_of
from sidecar.store.redis_errors import error_word
from sidecar.store.scripts import Script
from sidecar.store.sentinel_client import master_client

T = TypeVar("T")

_CLOSE_S: Final = 0.1
"""Maximum time to close a connection after a failure: TLS waits for the other side."""


class RedisClient:
    """One connection at a time to the Redis at ``url``; not for several tasks at once.

    ``redis://``, ``rediss://`` and ``unix://`` are fixed addresses; ``redis+sentinel://host,host/master`` is the master
    by its Sentinels, ``redis+cluster://host,host`` the node of a Cluster that owns ``key``, which must share a slot
    with all keys of all commands. There, each Sentinel and each seed gets a share of ``connect_timeout_s``.

    Raises ValueError, which repeats nothing of the URL, when the URL or the files of ``access`` cannot be used, or when
    they contradict each other.
    """

    def __init__(self, url: str, connect_timeout_s: float, access: Access = NO_FILES, key: str = "") -> None:
        self.watch = ConnectionWatch()
        try:
            self._client = _client(url, connect_timeout_s, access, key, self.watch)
        except AccessError:
            raise
        except (ValueError, TypeError, OSError, RedisError):
            raise ValueError("cannot be used as a Redis URL") from None

    async def ask(self, read: Callable[[Any], T], *command: str | bytes) -> T:
        """Send one command, over a new connection if need be, and return ``read(reply)`` (RESP2).

        Raises StoreError with the word of ``error_word``. Every error ends the connection, cancellation too.
        """
        try:
            return read(await self._client.execute_command(*command))
        except BaseException as error:
            if not isinstance(error, NoScriptError):  # this reply only asks for another command
                with suppress(*FAILURES):
                    async with asyncio.timeout(_CLOSE_S):
                        await self._client.aclose()
            if isinstance(error, Exception):
                raise StoreError(error_word(error)) from error
            raise

    async def run(
        self, read: Callable[[Any], T], script: Script, keys: Sequence[bytes], arguments: Iterable[str | bytes]
    ) -> T:
        """As ``ask``, with a script: sent by its digest, and in full to a server that does not know it."""
        command = (str(len(keys)), *keys, *arguments)
        try:
            return await self.ask(read, "EVALSHA", script.sha, *command)
        except StoreError as error:
            if not isinstance(error.__cause__, NoScriptError):
                raise
        return await self.ask(read, "EVAL", script.text, *command)

    async def aclose(self) -> None:
        """End the connection."""
        await self._client.aclose()


def _client(url: str, timeout_s: float, access: Access, key: str, watch: ConnectionWatch) -> Client:
    if "+" not in url.partition("://")[0]:
        return client_of(ConnectionPool(**options_of(parse_url(url), timeout_s, access, watch)))
    place = host_list(url)
    share_s = timeout_s / (len(place.hosts) + 1)
    if place.kind == "cluster":
        return ClusterClient(place, share_s, access, key, watch)
    return master_client(place, share_s, access, watch)
