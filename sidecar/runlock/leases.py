"""Locks in Redis: leases by the server's time, renewed by heartbeats. A random word identifies the holder.

Two clocks end a lease. The holder's clock ends it ``2/5 ttl`` after sending the last heartbeat that was answered. The
server gives it to another holder no sooner than ``ttl`` after that heartbeat arrived: ``lease.lua`` says why. So there
are never two holders, if at most one thing fails per ttl: the network, the server, its clock or a failover. Not
covered: a server that is emptied while it runs (FLUSHALL, eviction), an old master that is cut off together with the
holder (``min-replicas-to-write 1`` prevents that), and a holder that works on without checking ``is_held``.
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
from urllib.parse import unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import RedisError, ResponseError
from redis.retry import Retry
from redis.sentinel import Sentinel

from .concurrency import Lock, LockError

if TYPE_CHECKING:
    from collections.abc import Callable

_SCRIPT: Final = Path(__file__).with_name("lease.lua")
_NAME: Final = re.compile(r"[\x21-\x7e]{1,200}")
_HELD_PART: Final = 2 / 5
"""The part of its ttl for which the holder counts a lease as its own: lease.lua relies on it."""
_URL: Final = re.compile(r"(?:rediss?|unix)://[^\s#,]*", re.IGNORECASE)
_SENTINEL_URL: Final = re.compile(
    r"redis\+sentinel://(?:(?P<login>[^\s/@#]*)@)?(?P<hosts>[^\s/@?#]+)/(?P<master>[\w.-]+)(?:/(?P<db>[0-9]*))?",
    re.IGNORECASE,
)
_URL_HINT: Final = (
    "this is not a Redis URL for a lock: give one URL with redis://, rediss://, unix:// or "
    "redis+sentinel://host:26379,host:26379/master; to a Cluster, or to Sentinels with TLS or options, hand in a "
    "client of your own"
)
_MIN_TTL_S: Final = 0.1
_SENTINEL_PORT: Final = 26379
_FAILURES: Final = (RedisError, OSError)
_SENTINEL: Final[Any] = Sentinel  # redis-py gives it no types


def _now() -> float:
    """Return monotonic seconds that include the time in which the machine was suspended, where the system has them."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class _Lease:
    """One granted lease. A lost lease stays lost, even if a late answer or another thread extends it."""

    def __init__(self, word: str, slot: int, ends_at: float) -> None:
        self.word = word
        self.slot = slot
        self.ends_at = ends_at
        self.is_lost = False
        self._process = os.getpid()

    def lasts(self, now: float) -> bool:
        # A forked child has a copy of the lease, but only the parent is the holder.
        if now >= self.ends_at or os.getpid() != self._process:
            self.is_lost = True
        return not self.is_lost


class Leases(Lock):
    """One of ``max_procs`` leases of the lock ``name`` in Redis, each for ``ttl_s`` seconds from its last heartbeat.

    Its holder calls ``heartbeat()`` more often than every ``beat_within_s`` seconds, and checks ``is_held`` before each
    piece of work.

    ``server`` is a URL (``redis://``, ``rediss://``, ``unix://`` or ``redis+sentinel://hosts/master``) or a client with
    a ``socket_timeout``. With a URL each answer may take ``timeout_s`` seconds, by default a tenth of the ttl and at
    most one second. ``clock`` gives monotonic seconds. Raises ValueError for wrong arguments.
    """

    def __init__(
        self,
        server: Any,
        name: str = "main",
        max_procs: int = 1,
        *,
        ttl_s: float = 30.0,
        timeout_s: float | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise ValueError("the name of a lock has visible ASCII characters, at most 200")
        super().__init__(max_procs)
        if not _MIN_TTL_S <= ttl_s <= 86_400:  # noqa: PLR2004 - a day
            raise ValueError("ttl_s has to be between 0.1 s and a day")
        self._key = f"health-arbiter:lock:{{{name}}}"
        self._ttl_s = ttl_s
        self._clock = clock or _now
        self._owns_client = isinstance(server, str)
        self._client = _client(server, timeout_s or min(1.0, ttl_s / 10)) if self._owns_client else _checked(server)
        self._script = self._client.register_script(_SCRIPT.read_text())
        self._lease: _Lease | None = None

    @property
    def beat_within_s(self) -> float:
        """How long a lease lasts without another heartbeat, in seconds."""
        return self._ttl_s * _HELD_PART

    @property
    def lock_id(self) -> int | None:
        """The id of the lease, while it is held by the holder's clock."""
        return self._lease.slot if self._lease and self._lease.lasts(self._clock()) else None

    def acquire(self) -> int | None:
        """As ``Lock.acquire``. Raises LockError if Redis does not answer, or answers too late."""
        if (lock_id := self.lock_id) is not None:
            return lock_id
        self._lease = None
        word, sent_at = secrets.token_hex(16), self._clock()
        try:
            slot = self._ask("acquire", word)
        except _FAILURES as error:
            # Only the text of the server itself: other texts may contain its address.
            reason = f": {error}" if isinstance(error, ResponseError) else ""
            raise LockError(f"Redis does not say whether the lock is free: {type(error).__name__}{reason}") from None
        if not slot:
            return None
        lease = _Lease(word, slot, sent_at + self.beat_within_s)
        if not lease.lasts(self._clock()):
            self._give_back(lease)
            raise LockError("Redis gave the lock too late for it to be used")
        self._lease = lease
        return slot

    def heartbeat(self) -> bool:
        """Extend the lease and return True; False once it is lost."""
        lease = self._lease
        if lease is None or not lease.lasts(self._clock()):
            return False
        sent_at = self._clock()
        try:
            slot = self._ask("extend", lease.word)
        except _FAILURES:
            slot = 0
        # An answer that comes after the lease has ended by the holder's clock is too late.
        if not lease.lasts(self._clock()) or slot != lease.slot:
            lease.is_lost = True
            return False
        lease.ends_at = sent_at + self.beat_within_s
        return lease.lasts(self._clock())

    def release(self) -> None:
        """Give back a lease that is still held, and close a client made from a URL. Without Redis the lease expires."""
        lease, self._lease = self._lease, None
        if lease and lease.lasts(self._clock()):
            self._give_back(lease)
        if self._owns_client:
            with suppress(*_FAILURES):
                self._client.close()

    def _give_back(self, lease: _Lease) -> None:
        with suppress(*_FAILURES):
            self._ask("release", lease.word)

    def _ask(self, order: str, word: str) -> int:
        arguments = [order, word, round(self._ttl_s * 1e6), self.max_procs]
        try:
            return int(self._script(keys=[self._key], args=arguments))
        except Disconnected:
            # An idle connection may be dead while the server is well. Asking twice does no harm.
            return int(self._script(keys=[self._key], args=arguments))


def _checked(client: Any) -> Any:
    """Return the client. ValueError if it has no timeout: it would wait for a paused server while its lock ends."""
    if inspect.iscoroutinefunction(getattr(client, "execute_command", None)):
        raise ValueError("the client of Redis must be a synchronous one, not of redis.asyncio")
    options = getattr(getattr(client, "connection_pool", None), "connection_kwargs", {"socket_timeout": 0})
    if options.get("socket_timeout") is None:
        raise ValueError("the client of Redis needs a socket_timeout: with none, a heartbeat could hang")
    return client


def _client(url: str, timeout_s: float) -> Any:
    """Return the client for a URL. Raises ValueError whose text contains no part of the URL."""
    options: dict[str, Any] = {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "retry": Retry(NoBackoff(), 0),
    }
    sentinels = _SENTINEL_URL.fullmatch(url)
    if not sentinels and not _URL.fullmatch(url):
        raise ValueError(_URL_HINT)
    try:
        if not sentinels:
            return redis.Redis.from_url(url, **options)
        places = [urlsplit(f"//{place}") for place in sentinels["hosts"].split(",")]
        hosts = [(place.hostname, place.port or _SENTINEL_PORT) for place in places]
    except ValueError:  # its text may repeat the password
        raise ValueError(_URL_HINT) from None
    name, _, password = (unquote(part) for part in (sentinels["login"] or "").partition(":"))
    sentinel: Any = _SENTINEL(hosts, sentinel_kwargs=dict(options))
    options |= {"db": int(sentinels["db"] or 0), "username": name or None, "password": password or None}
    return sentinel.master_for(sentinels["master"], **options)
