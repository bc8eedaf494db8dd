"""At most k processes at once, and one more that waits until one of them is gone.

Synchronous, for programs of any kind. What holds the locks is files of a directory or a Redis; nothing in here knows
more of either than ``Slots`` tells.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from sidecar.runlock.flock import FlockSlots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Sleep = Callable[[float], object]

_NAME_OF_PROCESS: Final = Path("/proc/self/comm")


class Slots(Protocol):
    """What keeps the locks: ``FlockSlots`` or ``leases.Leases``."""

    @property
    def beat_within_s(self) -> float:
        """How long one lasts without a heartbeat, in seconds."""

    @property
    def is_held(self) -> bool:
        """Whether one is held now."""

    @property
    def slot(self) -> int | None:
        """Which, from 1."""

    def fileno(self) -> int:
        """Return what a process inherits to hold it too."""

    def acquire(self) -> int | None:
        """Take a free one at once, or none."""

    def heartbeat(self) -> bool:
        """Keep the one that is held; False once it is lost."""

    def release(self) -> None:
        """Give it back."""


class ConcurrencyLimit:
    """At most ``max_procs`` holders of the lock ``name``: in files of the directory ``path``, or in ``redis``.

    ``redis`` is the URL of one server or of its Sentinels, or a synchronous client of redis-py with a
    ``socket_timeout``. There a lock is a lease of ``ttl_s`` seconds: it has to be kept with ``heartbeat()`` more often
    than every ``beat_within_s`` seconds, and who holds it asks ``is_held`` before each piece of work. A lock in files
    lasts as long as its process, and as the children which that has forked.

    As a context manager it gives the id, from 1, or None when all are taken, and releases at the end::

        with ConcurrencyLimit(path="/var/lib/app/locks", max_procs=3) as lock_id:
            if lock_id is not None:
                work()

    Raises ValueError for arguments that cannot be. An object belongs to one thread, but for ``is_held``.
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
            self._slots: Slots = FlockSlots(Path(path), name, max_procs)
        else:
            from sidecar.runlock.leases import Leases  # noqa: PLC0415 - the client of Redis, only for who has one

            self._slots = Leases(redis, name, max_procs, ttl_s=ttl_s, timeout_s=timeout_s, clock=clock)

    @property
    def is_held(self) -> bool:
        """Whether the lock is held. What was lost is not held again until it is acquired again."""
        return self._slots.is_held

    @property
    def lock_id(self) -> int | None:
        """Which of the locks 1 to ``max_procs`` is held, None for none."""
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
        """Take a free lock and return its id, at once; None when all are taken. A held one is returned again.

        Raises LockError when whether it is free cannot be told: no directory, no answer from Redis.
        """
        return self._slots.acquire()

    def wait(self, *, retries: int | None, interval_s: float, sleep: Sleep = time.sleep) -> int | None:
        """Try at once, then up to ``retries`` times more (None: for ever), ``interval_s`` seconds before each."""
        _refuse_endless(retries, interval_s)
        for _ in _attempts(retries, interval_s, sleep):
            if (lock_id := self.acquire()) is not None:
                return lock_id
        return None

    def heartbeat(self) -> bool:
        """Keep the lock and return whether it is still held.

        False, and released, once another may have it: Redis is away, has lost it or does not answer in time; the file
        of the lock was removed.
        """
        return self._slots.heartbeat()

    def release(self) -> None:
        """Give the lock back. Without one nothing happens, and it raises nothing: a lease that stays ends by itself."""
        self._slots.release()

    def __enter__(self) -> int | None:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class WithStandby:
    """A lock that one more process waits for: whoever gets neither ``main`` nor ``standby`` leaves.

    ``acquire()`` tries main. If that is taken, it tries standby, once. As standby it tries main at once, and then
    ``retries`` times more (None: for ever), waiting ``interval_s`` seconds before each: R retries are R waits, so it
    waits ``retries * interval_s`` in all. When main is free it takes that and releases standby, at once; when it
    gives up it releases standby as well. Raises ValueError when the standby's lease would not last ``interval_s``.

    With ``process_name``, the name of the thread that waits, as ``ps -o comm`` shows it, is that while it waits: 15
    bytes on Linux. ``sleep`` takes seconds; what it raises ends the wait, with nothing held.
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
        _refuse_endless(retries, interval_s)
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

    @property
    def is_held(self) -> bool:
        """Whether main is held."""
        return self._main.is_held

    @property
    def lock_id(self) -> int | None:
        """Which of main's locks is held."""
        return self._main.lock_id

    def acquire(self) -> int | None:
        """Return the id of main's lock, after waiting as standby if need be; None: both taken, or waited long enough.

        Raises LockError as ``ConcurrencyLimit.acquire``; then neither is held.
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

    def heartbeat(self) -> bool:
        """Keep main; False once it is lost."""
        return self._main.heartbeat()

    def release(self) -> None:
        """Give main back."""
        self._main.release()

    def __enter__(self) -> int | None:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def _wait(self) -> int | None:
        for _ in _attempts(self._retries, self._interval_s, self._sleep):
            if (lock_id := self._main.acquire()) is not None:
                return lock_id
            if not self._standby.heartbeat():
                break  # another may be standby by now
        return None


def _refuse_endless(retries: int | None, interval_s: float) -> None:
    if retries is not None and retries < 0:
        raise ValueError("retries cannot be negative")
    if interval_s <= 0:
        raise ValueError("interval_s has to be more than 0: without a wait this would only burn the processor")


def _attempts(retries: int | None, interval_s: float, sleep: Sleep) -> Iterator[None]:
    """One at once, then one after each of the waits."""
    yield
    waits = 0
    while retries is None or waits < retries:
        sleep(interval_s)
        waits += 1
        yield


def _rename(name: str) -> str:
    """Give the process a name and return the one before, "" for none: where that cannot be had, so be it."""
    before = ""
    if name:
        with suppress(OSError):
            before = _NAME_OF_PROCESS.read_text().rstrip("\n")
            _NAME_OF_PROCESS.write_text(name)
    return before
