"""At most k processes at once, and standbys that wait until one of them has ended.

Synchronous, for any program. The locks are in files (``FlockSlots``) or in Redis (``Leases``).
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .flock import FlockSlots

if TYPE_CHECKING:
    from collections.abc import Callable

    from .leases import Leases

    Sleep = Callable[[float], object]

_NAME_OF_PROCESS: Final = Path("/proc/self/comm")


class ConcurrencyLimit:
    """At most ``max_procs`` holders of the lock ``name``: in files of the directory ``path``, or in ``redis``.

    ``redis`` is the URL of one server or of its Sentinels, or a synchronous client of redis-py with a
    ``socket_timeout``. A lock in Redis is a lease of ``ttl_s`` seconds. Its holder calls ``heartbeat()`` more often
    than every ``beat_within_s`` seconds, and checks ``is_held`` before each piece of work. A lock in files lasts as
    long as its process and the children that the process has forked.

    As a context manager it returns the id, from 1, or None if all are taken, and releases the lock at the end::

        with ConcurrencyLimit(path="/var/lib/app/locks", max_procs=3) as lock_id:
            if lock_id is not None:
                work()

    Raises ValueError for wrong arguments. An object belongs to one thread, except for ``is_held``.
    """

    def __init__(
        self,
        path: Path | str | None = None,
        *,
        redis: Any = None,
        max_procs: int = 1,
        name: str = "main",
        ttl_s: float = 30.0,
        timeout_s: float | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        if (path is None) == (redis is None):
            raise ValueError("a lock is either in files, path=..., or in Redis, redis=...")
        if path is not None:
            self._slots: FlockSlots | Leases = FlockSlots(Path(path), name, max_procs)
        else:
            from . import leases  # noqa: PLC0415 - redis-py is optional

            self._slots = leases.Leases(redis, name, max_procs, ttl_s=ttl_s, timeout_s=timeout_s, clock=clock)
        self.max_procs = max_procs
        """Maximum number of holders."""

    @property
    def is_held(self) -> bool:
        """Whether the lock is held. A lost lock stays lost until it is acquired again."""
        return self._slots.is_held

    @property
    def lock_id(self) -> int | None:
        """The number of the held lock, 1 to ``max_procs``; None without one."""
        return self._slots.slot if self._slots.is_held else None

    @property
    def beat_within_s(self) -> float:
        """How long a lock lasts without ``heartbeat()``, in seconds: infinity in files."""
        return self._slots.beat_within_s

    def fileno(self) -> int:
        """Return the descriptor of a lock in a file: a process that inherits it (``pass_fds``) holds the lock too.

        Raises ValueError when none is held, and for a lease.
        """
        return self._slots.fileno()

    def acquire(self) -> int | None:
        """Take a free lock without waiting and return its id, or the id of the held lock; None when all are taken.

        Raises LockError if it cannot find out whether a lock is free: no directory, no answer from Redis.
        """
        return self._slots.acquire()

    def heartbeat(self) -> bool:
        """Keep the lock and return whether it is still held.

        Releases the lock and returns False once another process may have it: Redis is away, has lost it or answers too
        late, or the file of the lock was removed.
        """
        return self._slots.heartbeat()

    def release(self) -> None:
        """Give the lock back, if there is one. Raises nothing. A lease that cannot be given back expires."""
        self._slots.release()

    def __enter__(self) -> int | None:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class WithStandby:
    """A lock with standbys that wait for it. A process that gets neither ``main`` nor ``standby`` ends.

    As many wait as ``max_procs`` of ``standby`` allows: one by default.

    ``acquire()`` tries main. If that is taken, it tries standby, once. As standby it tries main at once, and then
    ``retries`` times more (None: for ever), with a wait of ``interval_s`` seconds before each: R retries are R waits,
    ``retries * interval_s`` seconds in all. It releases standby as soon as it has main, or gives up. Raises ValueError
    if the lease of the standby would not last ``interval_s``.

    ``process_name`` is the name of the waiting thread in ``ps -o comm``, at most 15 bytes on Linux. ``sleep`` takes
    seconds; an exception from it ends the wait, with nothing held.
    """

    def __init__(
        self,
        main: ConcurrencyLimit,
        standby: ConcurrencyLimit,
        *,
        retries: int | None = 10,
        interval_s: float = 1.0,
        process_name: str = "",
        sleep: Sleep = time.sleep,
    ) -> None:
        if retries is not None and retries < 0:
            raise ValueError("retries cannot be negative")
        if interval_s <= 0:
            raise ValueError(
                "interval_s has to be more than 0: without a wait the standby would only use up the processor"
            )
        if interval_s >= standby.beat_within_s:
            raise ValueError(
                f"a standby's lease ends before {interval_s:g} s are over: wait less, or take a longer ttl_s"
            )
        self._main = main
        self._standby = standby
        self._retries = retries
        self._interval_s = interval_s
        self._process_name = process_name
        self._sleep = sleep

    def acquire(self) -> int | None:
        """Return the id of a lock of main, after a wait as standby if necessary; None if this process is not needed.

        Raises LockError as ``ConcurrencyLimit.acquire`` does, and then holds no lock.
        """
        if (lock_id := self._main.acquire()) is not None:
            return lock_id
        if self._standby.acquire() is None:
            return None
        before = _rename(self._process_name)
        try:
            return self._wait()
        finally:
            self._standby.release()
            _rename(before)

    def release(self) -> None:
        """Give main back."""
        self._main.release()

    def __enter__(self) -> int | None:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def _wait(self) -> int | None:
        waits = 0
        while (lock_id := self._main.acquire()) is None:
            if waits == self._retries or not self._standby.heartbeat():  # another process may be the standby now
                return None
            self._sleep(self._interval_s)
            waits += 1
        return lock_id


def _rename(name: str) -> str:
    """Rename the process if ``name`` is not empty, and return the former name; "" where that is not possible."""
    before = ""
    if name:
        with suppress(OSError):
            before = _NAME_OF_PROCESS.read_text().rstrip("\n")
            _NAME_OF_PROCESS.write_text(name)
    return before
