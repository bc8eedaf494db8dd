"""What all locks have, and standbys that wait until one of their holders has ended. Synchronous, for any program."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    Sleep = Callable[[float], object]

_NAME_OF_PROCESS: Final = Path("/proc/self/comm")


class LockError(Exception):
    """It is unknown whether the lock is free; the text is a sentence for the operator."""


class Lock(ABC):
    """A lock with a number of holders at once, whose ids count from 1. An object belongs to one thread.

    As a context manager it returns the id, or None if all are taken, and releases the lock at the end::

        with ConcurrencyLimit("/var/lib/app/locks", max_procs=3) as lock_id:
            if lock_id is not None:
                work()
    """

    def __init__(self, max_procs: int) -> None:
        if max_procs < 1:
            raise ValueError("a lock has at least one holder")
        self.max_procs = max_procs

    @property
    @abstractmethod
    def lock_id(self) -> int | None:
        """The id that this object holds now. Asks neither the disk nor Redis."""

    @property
    def is_held(self) -> bool:
        """Whether this object holds the lock now."""
        return self.lock_id is not None

    @property
    def beat_within_s(self) -> float:
        """How long the lock lasts without ``heartbeat()``, in seconds: infinity in files."""
        return math.inf

    @abstractmethod
    def acquire(self) -> int | None:
        """Take the first free lock without waiting and return its id, or the id of the held one; None if all are taken.

        Raises LockError if it cannot find out whether a lock is free: no directory, no answer from Redis.
        """

    @abstractmethod
    def heartbeat(self) -> bool:
        """Keep the lock and return whether it is still held.

        Releases the lock and returns False once another process may have it: Redis is away, has lost it or answers too
        late, or the file of the lock was removed.
        """

    @abstractmethod
    def release(self) -> None:
        """Give the lock back, if there is one. Raises nothing. A lease that cannot be given back expires."""

    def __enter__(self) -> int | None:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class WithStandby(Lock):
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
        main: Lock,
        standby: Lock,
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
        super().__init__(main.max_procs)
        self._main = main
        self._standby = standby
        self._retries = retries
        self._interval_s = interval_s
        self._process_name = process_name
        self._sleep = sleep

    @property
    def lock_id(self) -> int | None:
        """The id of main."""
        return self._main.lock_id

    def acquire(self) -> int | None:
        """Return the id of a lock of main, after a wait as standby if necessary; None if this process is not needed.

        Raises LockError as ``Lock.acquire`` does, and then holds no lock.
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
