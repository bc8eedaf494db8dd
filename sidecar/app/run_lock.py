"""The run lock of the sidecar: one of several runs, and a standby waits for its end (``runlock.flock``).

The kernel frees the lock of a process that ends, in whatever way, and wakes the standby. The standby has imported
everything by then: it reads the state file and opens the listeners. A sidecar must hold the lock ``standby`` to take
``main``. So a third sidecar cannot become the main before the standby does, and a sidecar that finds ``standby`` taken
is not needed.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import stat
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from sidecar.net.threads import in_thread
from sidecar.runlock import ConcurrencyLimit, LockError
from sidecar.telemetry.log import logger

CHECK_S: Final = 2.0
"""Interval at which the main looks whether its lock file is in place and whether a standby waits."""

TRIES: Final = 5
RETRY_S: Final = 0.02
"""A sidecar that starts as main, and a main that checks, hold the lock ``standby`` for a moment: try for longer."""


class RunLock:
    """The lock of one directory. ``waits``: whether this sidecar waits as standby while another is the main.

    ``modules`` are imported before the wait: when the main has ended, nothing answers until the standby does.
    """

    def __init__(self, directory: Path, *, waits: bool, modules: Sequence[str] = ()) -> None:
        self._directory = directory
        self._waits = waits
        self._modules = modules
        self._main = ConcurrencyLimit(directory, "main")
        self._standby = ConcurrencyLimit(directory, "standby")
        self._checking = threading.Lock()
        self.has_standby = False

    def acquire(self) -> bool:
        """Become the main, as standby after the end of the present one; False if this sidecar is not needed.

        Raises LockError if the directory cannot be used.
        """
        usable_directory(self._directory)
        if self._waits:
            self._prepare()
        if not self._is_next():
            logger.info("main and standby are there: nothing to do")
            return False
        try:
            return self._main.acquire() is not None or self._succeeds()
        finally:
            self._standby.release()

    def _is_next(self) -> bool:
        for _ in range(TRIES):
            if self._standby.acquire() is not None:
                return True
            time.sleep(RETRY_S)
        return False

    def _prepare(self) -> None:
        """Do what would cost time when the main has ended: import, and let no collection look at what is imported."""
        for module in self._modules:
            importlib.import_module(module)
        gc.collect()
        gc.freeze()

    def _succeeds(self) -> bool:
        """Wait for the end of the main."""
        if not self._waits:
            logger.info("a main is there: nothing to do")
            return False
        logger.info("standby is ready")
        while self._main.wait() is None:
            usable_directory(self._directory)  # the lock file was removed, perhaps with its directory
        return True

    async def keep(self, on_failure: Callable[[Exception], None]) -> None:
        """Look every ``CHECK_S`` whether the lock file is in place and a standby waits, until cancelled.

        If the file was removed, the lock is taken anew. ``on_failure`` gets what prevents that; it is tried again.
        """
        while True:
            try:
                self.has_standby = await in_thread(self._checked)
            except (LockError, RuntimeError) as error:  # RuntimeError: no thread can be started
                on_failure(error)
            await asyncio.sleep(CHECK_S)

    def _checked(self) -> bool:
        with self._checking:
            if not self._main.is_in_place():
                self._retake()
            return self._is_awaited()

    def _retake(self) -> None:
        """Take the lock of the new file before that of the old one ends, which wakes the standby."""
        usable_directory(self._directory)
        taken = ConcurrencyLimit(self._directory, "main")
        if taken.acquire() is None:
            raise LockError(f"{self._directory}: the lock file was replaced, and another sidecar holds its lock")
        self._main.release()
        self._main = taken
        logger.warning("run lock taken anew: its file was removed")

    def is_awaited(self) -> bool:
        """Whether a standby waits for the lock now; False if that cannot be known. Reads the disk."""
        with self._checking, suppress(LockError):
            return self._is_awaited()
        return False

    def _is_awaited(self) -> bool:
        try:
            return self._standby.acquire() is None
        finally:
            self._standby.release()

    def release(self) -> None:
        """Let the standby become the main."""
        self._main.release()


def usable_directory(directory: Path) -> None:
    """Create the directory of the locks if it is missing. ``LockError`` unless only this user can write in it.

    Others may write in its parent, such as the tasks of an allocation in ``alloc/tmp`` of Nomad (mode 0777): they can
    move the directory, which the main notices, and cannot put files into it. One that they have made is refused.
    """
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        status = directory.stat()
    except OSError as error:
        raise LockError(f"{directory}: {error.strerror}") from None
    if status.st_uid != os.geteuid():
        raise LockError(f"{directory}: belongs to user {status.st_uid}, the sidecar runs as {os.geteuid()}")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        text = f"{directory}: others may write in it (mode {stat.S_IMODE(status.st_mode):o}), it must be 700"
        raise LockError(f"{text}; the sidecar makes one that is missing, such as {directory}/lock")
