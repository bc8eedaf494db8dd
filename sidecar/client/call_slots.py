"""How many calls one node may serve at once: slots under a limit that learns, so that callers do not pile up.

After Netflix concurrency-limits (``AIMDLimit``): additive increase while calls succeed and the limit is in use,
multiplicative decrease when a call is lost. An error that a node answers says nothing about the load that it can bear.
"""

from __future__ import annotations

from typing import Final

FIRST: Final = 10
HIGHEST: Final = 200
BACKOFF: Final = 0.9
"""Part of the limit that is left when a call is lost: one that is more than halved would forget what it learned."""


class CallSlots:
    """The slots of one node. ``limit`` is never less than 1: a limit of 0 could never learn again."""

    __slots__ = ("in_flight", "limit")

    def __init__(self) -> None:
        self.limit = FIRST
        self.in_flight = 0

    def acquire(self) -> int | None:
        """Take a slot and return the number of calls in flight, this one included; None if no slot is free."""
        if self.in_flight >= self.limit:
            return None
        self.in_flight += 1
        return self.in_flight

    def release(self) -> None:
        """Give a slot back, once for each ``acquire``."""
        self.in_flight -= 1

    def grow(self, in_flight: int) -> None:
        """Note that the ``in_flight``-th call succeeded. A node that is idle proves nothing about its limit."""
        if in_flight * 2 >= self.limit:
            self.limit = min(HIGHEST, self.limit + 1)

    def shrink(self) -> None:
        """Note that a call was lost: no answer in time."""
        self.limit = max(1, min(self.limit - 1, int(self.limit * BACKOFF)))
