"""Entries of a ledger, a bucket in memory that keeps them, and how they are read back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.budget import Budget
from sidecar.budget.memory import MemoryBudget
from sidecar.core.grants import Quota
from sidecar.core.words import US_PER_S, Entry, Unknown

if TYPE_CHECKING:
    from harness.redis_server import RedisServer

AT = 1_699_999_990.5
STREAM = "{ha:default/app}:events"
CULLED = Entry("culled", AT, "a", "redis", "errors", "ann", 3.25, "5 errors")
BARE = Entry("helped", AT + 1)
MANY = [Entry("suspect", AT + number, "a", str(number)) for number in range(5)]


class Bucket:
    """A bucket, and the clock that it goes by."""

    def __init__(self, server: RedisServer | None = None) -> None:
        self.server = server
        self.now_s = 1_700_000_000.0

    def memory(self) -> MemoryBudget:
        return MemoryBudget("log", Quota(1, US_PER_S), lambda: round(self.now_s * US_PER_S))

    def passes(self, seconds: float) -> None:
        self.now_s += seconds
        if self.server is not None:
            self.server.set_time(self.now_s)


async def read(budget: Budget, since: float = 0.0, after: str = "", most: int = 1000) -> list[Entry]:
    """The entries as they were handed in, without their ids."""
    answer = await budget.entries(since, after, most)
    assert not isinstance(answer, Unknown), answer
    return [entry._replace(id="") for entry in answer]
