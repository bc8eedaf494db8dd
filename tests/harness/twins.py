"""One time for the bucket in memory and the one in Redis, so that they can be asked the same."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from harness.claims import S
from harness.twin import TwinBudget
from sidecar.budget.redis import RedisBudget
from sidecar.core.fleet import FleetBucket
from sidecar.core.terms import Terms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.redis_server import RedisServer

START_US = 1_700_000_400 * S  # begins a window of ten minutes


class World:
    """The twin's clock, the caller's wall clock, and the server's, if there is one: they stand still until ``go``."""

    def __init__(self, server: RedisServer | None = None) -> None:
        self.server = server
        self.bucket = FleetBucket()
        self._twins: list[TwinBudget] = []
        self.go(START_US)

    def go(self, now_us: int) -> None:
        """Move all clocks to this instant of Unix time."""
        self.now_us = now_us
        if self.server is not None:
            self.server.set_time(now_us / S)

    def forget(self) -> None:
        """Both lose their memory; who asks them does not."""
        self.bucket = FleetBucket()
        for twin in self._twins:
            twin.bucket = self.bucket
        if self.server is not None:
            self.server.cli("FLUSHALL")

    def local_time(self) -> datetime:
        return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=self.now_us)

    def twin(self, terms: Terms) -> TwinBudget:
        """A sidecar's way to the bucket in memory."""
        self._twins.append(TwinBudget(self.bucket, terms, lambda: self.now_us))
        return self._twins[-1]

    def redis(self, terms: Terms) -> RedisBudget:
        """A sidecar's way to the bucket in Redis."""
        assert self.server is not None
        return redis_budget(self.server.url, terms, local_time=self.local_time)


def redis_budget(url: str, terms: Terms, **changes: Any) -> RedisBudget:
    """The bucket of the service ``app`` in the Redis at ``url``, in good time unless told so."""
    options = {"prefix": "{ha:default/app}", "fixed_key": "errorWatcher", "timeout_s": 5.0, **changes}
    return RedisBudget(url, terms=terms, **options)


@contextmanager
def impatient(*budgets: RedisBudget, for_s: float = 0.3) -> Iterator[None]:
    """They wait so long for an answer that will not come; before and after, a busy machine may take its time."""
    patience = [budget._timeout_s for budget in budgets]
    for budget in budgets:
        budget._timeout_s = for_s
    yield
    for budget, timeout_s in zip(budgets, patience, strict=True):
        budget._timeout_s = timeout_s
