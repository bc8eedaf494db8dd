"""The number of calls that one node may serve at once: a limit that learns, and the slots under it.

After Netflix concurrency-limits (``AIMDLimit``, and the listener of its limiters): additive increase while calls
succeed and the limit is in use, multiplicative decrease when a call is lost. The limit keeps callers from piling up at
a node that hangs.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

SMALLEST: Final = 1
"""A limit of 0 could never learn again."""


class Ending(StrEnum):
    """What the end of a call says about the load that its node can bear."""

    SUCCESS = "success"
    """The node bears this load."""
    IGNORED = "ignored"
    """Nothing: the node answered with an error, or the caller left."""
    DROPPED = "dropped"
    """The load may be too high: no answer in time."""


class AdaptiveLimit:
    """A limit for one node, between 1 and ``highest``, that moves by additive increase and multiplicative decrease.

    - success: one more, if at least half of the limit was in use when the call began, this call included. An idle
      node proves nothing about its limit.
    - dropped: ``backoff`` times the limit, rounded down, and at least one less.
    - ignored: no change.

    ``initial`` and ``highest`` are calls at once. ValueError unless 1 <= initial <= highest and 0.5 <= backoff < 1.
    """

    __slots__ = ("_backoff", "_highest", "in_flight", "limit")

    def __init__(self, initial: int = 10, *, highest: int = 200, backoff: float = 0.9) -> None:
        if not SMALLEST <= initial <= highest:
            raise ValueError(f"a limit begins within 1..{highest}, not at {initial}")
        if not 0.5 <= backoff < 1:  # noqa: PLR2004 - as in Netflix: a limit more than halved forgets what it learned
            raise ValueError(f"a back-off lies within [0.5, 1), unlike {backoff}")
        self.limit = initial
        self.in_flight = 0
        self._highest = highest
        self._backoff = backoff

    def acquire(self) -> int | None:
        """Take a slot and return the number of calls in flight, this one included; None if no slot is free."""
        if self.in_flight >= self.limit:
            return None
        self.in_flight += 1
        return self.in_flight

    def end(self, ending: Ending, in_flight: int) -> None:
        """Give back a slot that ``acquire`` gave as the ``in_flight``-th, once, and move the limit."""
        self.in_flight -= 1
        if ending is Ending.DROPPED:
            self.limit = max(SMALLEST, min(self.limit - 1, int(self.limit * self._backoff)))
        elif ending is Ending.SUCCESS and in_flight * 2 >= self.limit:
            self.limit = min(self._highest, self.limit + 1)
