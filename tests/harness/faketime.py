"""A wall clock that stands still until it is set, or runs on from where it is set, for one child process (libfaketime).

Only the wall clock: the monotonic one, which event loops live by, runs on.
"""

from __future__ import annotations

import os
from pathlib import Path

from harness.binaries import require

_PER_SECOND_US = 1_000_000


class FakeClock:
    """The time that a process started with ``env()`` sees, kept in a file that it reads at each look."""

    def __init__(self, directory: Path, name: str, now_s: float = 1_700_000_000.0) -> None:
        self._library = require("faketime")
        self._file = directory / f"{name}.time"
        self.set(now_s)

    @property
    def now_s(self) -> float:
        """Unix time in seconds, as last set."""
        return self._now_us / _PER_SECOND_US

    def set(self, now_s: float) -> None:
        """Move to this Unix time in seconds, forwards or backwards, to the microsecond; at once."""
        self._now_us = round(now_s * _PER_SECOND_US)
        seconds, micros = divmod(self._now_us, _PER_SECOND_US)
        # Half a microsecond more: libfaketime cuts off, and must not land on the one before.
        self._write(f"{seconds}.{micros:06d}500\n")

    def run(self, ahead_s: int) -> None:
        """Go with the real clock from now on, so many seconds ahead of it; behind it when negative."""
        self._write(f"{ahead_s:+d}\n")

    def _write(self, text: str) -> None:
        draft = self._file.with_suffix(".draft")
        draft.write_text(text)
        draft.replace(self._file)

    def env(self) -> dict[str, str]:
        """Environment for the process, ours included."""
        return os.environ | {
            # libc comes second so that its malloc wins over jemalloc's, which asks for the time while
            # libfaketime is still starting: the two recurse into one another and die.
            "LD_PRELOAD": f"{self._library}:libc.so.6",
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_FMT": "%s",
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "TZ": "UTC",
        }

    def forget(self, pid: int) -> None:
        """Remove what libfaketime leaves in shared memory when its process is killed."""
        for left in (f"faketime_shm_{pid}", f"sem.faketime_sem_{pid}"):
            Path("/dev/shm", left).unlink(missing_ok=True)
