"""Locks in Redis: leases under the server's time, kept by heartbeats, held by a random word.

Two clocks end a lease. Ours gives it up ``2/5 ttl`` after the last heartbeat that was answered, as of when that was
sent; the server's gives it to another no sooner than ``ttl`` after it came in, for reasons that ``lease.lua`` tells.
So there are never two holders, whatever the network, a paused server, its clock or a failover do, once in a ttl. Not
covered: a server that is emptied while it runs (FLUSHALL, eviction), an old master that is cut off with the holder
(``min-replicas-to-write 1`` ends that), and a holder that works on without asking ``is_held``.
"""

from __future__ import annotations

import inspect
import os
import re
import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import RedisError, ResponseError
from redis.retry import Retry
from redis.sentinel import Sentinel

from sidecar.config.redis_urls import HostList, host_list, redis_urls
from sidecar.runlock.flock import LockError

if TYPE_CHECKING:
    from collections.abc import Callable

_SCRIPT: Final = Path(__file__).with_name("lease.lua")
_NAME: Final = re.compile(r"[\x21-\x7e]{1,200}")
_OURS: Final = 2 / 5
"""The part of its ttl in which a lease is ours: lease.lua counts on it."""
_LEAST_TTL_S: Final = 0.1
_FAILURES: Final = (RedisError, OSError)
_SENTINEL: Final[Any] = Sentinel  # redis-py gives it no types


def _now() -> float:
    """Seconds that also pass while the machine is suspended, where the system counts them."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class _Lease:
    """One grant. Once lost it stays lost, whatever a late answer or another thread says."""

    def __init__(self, word: str, slot: int, ends_at: float) -> None:
        self.word = word
        self.slot = slot
        self.ends_at = ends_at
        self.is_lost = False
        self._process = os.getpid()

    def lasts(self, now: float) -> bool:
        # A forked child has a copy, but only one of the two can be the holder.
        if now >= self.ends_at or os.getpid() != self._process:
            self.is_lost = True
        return not self.is_lost


class Leases:
    """One of ``slots`` leases of the lock ``name`` in Redis, each for ``ttl_s`` seconds from its last heartbeat.

    ``server`` is a URL (``redis://``, ``rediss://``, ``unix://`` or ``redis+sentinel://hosts/master``) or a client with
    a ``socket_timeout``; of a URL's server each answer may take ``timeout_s`` seconds, a tenth of the ttl and a second
    at most if not given. ``clock`` gives seconds that never step. Raises ValueError for what cannot be.
    """

    def __init__(
        self,
        server: Any,
        name: str,
        slots: int = 1,
        *,
        ttl_s: float = 30.0,
        timeout_s: float | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise ValueError("the name of a lock is of visible ASCII characters, at most 200")
        if slots < 1:
            raise ValueError("there must be at least one slot")
        if not _LEAST_TTL_S <= ttl_s <= 86_400:  # noqa: PLR2004 - a day
            raise ValueError("ttl_s has to be between 0.1 s and a day")
        self._key = f"health-arbiter:lock:{{{name}}}"
        self._slots = slots
        self._ttl_s = ttl_s
        self._clock = clock or _now
        self._is_own = isinstance(server, str)
        self._client = _client(server, timeout_s or min(1.0, ttl_s / 10)) if self._is_own else _checked(server)
        self._script = self._client.register_script(_SCRIPT.read_text())
        self._lease: _Lease | None = None

    @property
    def beat_within_s(self) -> float:
        """How long a lease is held without another heartbeat, in seconds."""
        return self._ttl_s * _OURS

    @property
    def is_held(self) -> bool:
        """Whether a lease is held at this moment, by our own clock; asks nobody."""
        return self._lease is not None and self._lease.lasts(self._clock())

    @property
    def slot(self) -> int | None:
        """The slot of the lease, from 1, held or lost; None when there is none."""
        return self._lease.slot if self._lease else None

    def fileno(self) -> int:
        """Raise ValueError: a lease has no descriptor."""
        raise ValueError("a lease has no descriptor that could be inherited")

    def acquire(self) -> int | None:
        """Take the first free slot and return its number; None when there is none. A held one is returned.

        Raises LockError when Redis cannot be asked or answers too late.
        """
        if self._lease and self.is_held:
            return self._lease.slot
        self._lease = None
        word, sent_at = secrets.token_hex(16), self._clock()
        try:
            slot = self._ask("acquire", word)
        except _FAILURES as error:
            # What the server says is told; other texts may tell where it is.
            said = f": {error}" if isinstance(error, ResponseError) else ""
            raise LockError(f"Redis does not say whether the lock is free: {type(error).__name__}{said}") from None
        if not slot:
            return None
        lease = _Lease(word, slot, sent_at + self.beat_within_s)
        if not lease.lasts(self._clock()):
            self._give_back(lease)
            raise LockError("Redis gave the lock too late for it to be used")
        self._lease = lease
        return slot

    def heartbeat(self) -> bool:
        """Extend the lease and return True; False when it is lost, and then for good."""
        lease = self._lease
        if lease is None or not lease.lasts(self._clock()):
            return False
        sent_at = self._clock()
        try:
            slot = self._ask("extend", lease.word)
        except _FAILURES:
            slot = 0
        # Looked at before it is moved: an answer that came after our own end comes too late.
        if not lease.lasts(self._clock()) or slot != lease.slot:
            lease.is_lost = True
            return False
        lease.ends_at = sent_at + self.beat_within_s
        return lease.lasts(self._clock())

    def release(self) -> None:
        """Give the lease back if it is still ours, and end a connection of our own. Redis away: it ends by itself."""
        lease, self._lease = self._lease, None
        if lease and lease.lasts(self._clock()):
            self._give_back(lease)
        if self._is_own:
            with suppress(*_FAILURES):
                self._client.close()

    def _give_back(self, lease: _Lease) -> None:
        with suppress(*_FAILURES):
            self._ask("release", lease.word)

    def _ask(self, order: str, word: str) -> int:
        arguments = [order, word, round(self._ttl_s * 1e6), self._slots]
        try:
            return int(self._script(keys=[self._key], args=arguments))
        except Disconnected:
            # A connection that had lain idle may be dead without a server being away. Asked twice is no harm.
            return int(self._script(keys=[self._key], args=arguments))


def _checked(client: Any) -> Any:
    """A client that waits for ever would wait on a paused server with a lock that it no longer has."""
    if inspect.iscoroutinefunction(getattr(client, "execute_command", None)):
        raise ValueError("the client of Redis must be a synchronous one, not of redis.asyncio")
    options = getattr(getattr(client, "connection_pool", None), "connection_kwargs", {"socket_timeout": 0})
    if options.get("socket_timeout") is None:
        raise ValueError("the client of Redis needs a socket_timeout: with none, a heartbeat could hang")
    return client


def _client(url: str, timeout_s: float) -> Any:
    """Raises ValueError, which repeats nothing of the URL."""
    options: dict[str, Any] = {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "retry": Retry(NoBackoff(), 0),
    }
    addresses = redis_urls(url)
    if len(addresses) != 1:
        raise ValueError("a lock is on one Redis: give one URL")
    if "+" not in addresses[0].partition("://")[0]:
        return redis.Redis.from_url(addresses[0], **options)
    place = host_list(addresses[0])
    if place.kind != "sentinel" or place.secure or place.query:
        raise ValueError("to a Cluster, or to Sentinels with TLS or options, hand in a client of your own")
    return _of_sentinels(place, options)


def _of_sentinels(place: HostList, options: dict[str, Any]) -> Any:
    sentinels: Any = _SENTINEL(list(place.hosts), sentinel_kwargs=dict(options))
    master, *db = place.path
    name, _, password = (unquote(part) for part in place.login.partition(":"))
    options |= {"db": int(db[0]) if db else 0, "username": name or None, "password": password or None}
    return sentinels.master_for(master, **options)
