"""Processes under locks: a limit on how many run at once, one that waits to take over, and planned ends.

``from sidecar.runlock import ConcurrencyLimit, WithStandby``: after Booking.com's "Writing Advanced Daemons That Aren't
Daemons", with the words of IPC::ConcurrencyLimit (CPAN). Nothing of the sidecar, and Redis only for who locks there.
"""

from __future__ import annotations

from sidecar.runlock.concurrency import ConcurrencyLimit, WithStandby
from sidecar.runlock.flock import FlockSlots, LockError

__all__ = ["ConcurrencyLimit", "FlockSlots", "LockError", "WithStandby"]
