"""How many calls may be under way at a node at once: a limit that learns, and the leases under it.

After Netflix concurrency-limits (``AIMDLimit`` and the listener of its limiters): additive increase while calls go well
and the limit is in use, multiplicative decrease when a call is lost. The limit keeps a hung node from gathering callers
who all wait for it.

A lease must not know what it was taken for; it is told how that ended.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

SMALLEST: Final = 1
"""A limit of 0 could never learn again."""


class Ending(StrEnum):
    """What the end of a call says of the load its node can bear."""

    SUCCESS = "success"
    """It bears this much."""
    IGNORED = "ignored"
    """Nothing: an error that came back, or a caller who left."""
    DROPPED = "dropped"
    """Too much, perhaps: no answer in time."""


class AdaptiveLimit:
    """A limit for one node, between 1 and ``highest``, that moves by additive increase and multiplicative decrease.

    - success: one more, if at least half the limit was in use when the call began, itself included; an idle node's
      limit proves nothing, and must not grow.
    - dropped: ``backoff`` times the limit, rounded down, and at least one less.
    - ignored: as it was.

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

    def lease(self) -> Lease | None:
        """Take a lease, to be ended exactly once by ``Lease.end``; None if none is free."""
        if self.in_flight >= self.limit:
            return None
        self.in_flight += 1
        return Lease(self, self.in_flight)

    def learn(self, ending: Ending, in_flight: int) -> None:
        """Move the limit after a call that made ``in_flight`` calls under way when it began."""
        if ending is Ending.DROPPED:
            self.limit = max(SMALLEST, min(self.limit - 1, int(self.limit * self._backoff)))
        elif ending is Ending.SUCCESS and in_flight * 2 >= self.limit:
            self.limit = min(self._highest, self.limit + 1)


class Lease:
    """Leave for one call. It holds a place until it ends."""

    __slots__ = ("_in_flight", "_limit")

    def __init__(self, limit: AdaptiveLimit, in_flight: int) -> None:
        self._limit: AdaptiveLimit | None = limit
        self._in_flight = in_flight

    def end(self, ending: Ending) -> None:
        """Give the place back and tell the limit; RuntimeError when it was given back before."""
        if self._limit is None:
            raise RuntimeError("a lease ends exactly once")
        limit, self._limit = self._limit, None
        limit.in_flight -= 1
        limit.learn(ending, self._in_flight)
