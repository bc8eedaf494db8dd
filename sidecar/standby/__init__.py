"""Processes under locks: a limit on how many run at once, one that waits to take over, and planned ends.

``from sidecar.standby import ConcurrencyLimit, WithStandby``: after Booking.com's "Writing Advanced Daemons That Aren't
Daemons", with the words of IPC::ConcurrencyLimit (CPAN). Nothing of the sidecar, and Redis only for who locks there.
"""

from __future__ import annotations

from sidecar.standby.flock import FlockSlots, LockError
from sidecar.standby.limit import ConcurrencyLimit, WithStandby

__all__ = ["ConcurrencyLimit", "FlockSlots", "LockError", "WithStandby"]
