"""A wall clock for one child process (libfaketime), which stands still until it is set.

The monotonic clock, which event loops use, is the real one.
"""

from __future__ import annotations

import os
from pathlib import Path

from harness.binaries import require

_PER_SECOND_US = 1_000_000


class FakeClock:
    """The clock of a process started with ``env()``. libfaketime reads the time from a file at each call."""

    def __init__(self, directory: Path, name: str, now_s: float = 1_700_000_000.0) -> None:
        self._library = require("faketime")
        self._file = directory / f"{name}.time"
        self.set(now_s)

    @property
    def now_s(self) -> float:
        """Unix time in seconds, as last set."""
        return self._now_us / _PER_SECOND_US

    def set(self, now_s: float) -> None:
        """Set the clock to this Unix time in seconds, exact to the microsecond."""
        self._now_us = round(now_s * _PER_SECOND_US)
        seconds, micros = divmod(self._now_us, _PER_SECOND_US)
        # Half a microsecond more, because libfaketime truncates.
        draft = self._file.with_suffix(".draft")
        draft.write_text(f"{seconds}.{micros:06d}500\n")
        draft.replace(self._file)

    def env(self) -> dict[str, str]:
        """The environment of the tests with what libfaketime needs."""
        return os.environ | {
            # libc comes second so that its malloc replaces jemalloc's. jemalloc asks for the time while
            # libfaketime starts, which ends in an endless recursion.
            "LD_PRELOAD": f"{self._library}:libc.so.6",
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_FMT": "%s",
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "TZ": "UTC",
        }

    def forget(self, pid: int) -> None:
        """Remove the shared memory of libfaketime, which a killed process leaves."""
        for left in (f"faketime_shm_{pid}", f"sem.faketime_sem_{pid}"):
            Path("/dev/shm", left).unlink(missing_ok=True)
