"""Run locks: a limit on how many processes run at once, a standby that waits to take over, and planned ends.

After Booking.com's "Writing Advanced Daemons That Aren't Daemons", with the words of IPC::ConcurrencyLimit (CPAN). It
uses the standard library, and redis-py for locks in Redis. It knows nothing of the sidecar, and is a distribution of
its own, ``health-arbiter-runlock``: see ``pyproject.toml`` beside this file.
"""

from __future__ import annotations

from .concurrency import Lock, LockError, WithStandby
from .flock import ConcurrencyLimit

__all__ = ["ConcurrencyLimit", "Lock", "LockError", "WithStandby"]
