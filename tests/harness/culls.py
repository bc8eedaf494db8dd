"""Culls and their times: from the logs of the sidecars, and from the grants in Redis."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Self

import redis

if TYPE_CHECKING:
    from harness.redis_server import RedisServer
    from harness.sidecar import Sidecar

_POLL_S = 0.05
_US_PER_S = 1_000_000


class Cull(NamedTuple):
    """One cull, at Unix seconds. In a log it is some milliseconds after the grant."""

    at_s: float
    claim_id: str


def culls(fleet: Iterable[Sidecar]) -> list[Cull]:
    """Every cull in the logs of these sidecars, the first one first."""
    lines = (line for one in fleet for line in one.log_lines() if line.get("claim") == "granted")
    return sorted(Cull(datetime.fromisoformat(line["time"]).timestamp(), line["claim_id"]) for line in lines)


def most_within(culls: Iterable[Cull], window_s: float) -> int:
    """The greatest number of culls in any closed window of that length."""
    times = sorted(cull.at_s for cull in culls)
    return max((sum(start <= at <= start + window_s for at in times) for start in times), default=0)


def in_use(server: RedisServer, prefix: str, window_s: float) -> int:
    """How many grants of this server are younger than the window."""
    oldest_us = int((time.time() - window_s) * _US_PER_S)
    return int(server.cli("ZCOUNT", f"{prefix}:grants", oldest_us, "+inf"))


class Ledger:
    """Polls the grants of one service on one server, and keeps them when the server loses them.

    A claim that is granted again has the time of its last grant, which is the one that counts.
    """

    def __init__(self, server: RedisServer, prefix: str) -> None:
        self.server = server
        self._key = f"{prefix}:grants"
        self._noted: dict[str, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(10)

    @property
    def grants(self) -> list[Cull]:
        """All grants so far, the first one first."""
        return sorted(Cull(at_s, claim_id) for claim_id, at_s in self._noted.copy().items())

    def _run(self) -> None:
        while not self._over.wait(_POLL_S):
            self.look()

    def look(self) -> None:
        """Read the grants once; without an answer nothing changes."""
        try:
            rows = self.server.cli("ZRANGE", self._key, 0, -1, "WITHSCORES")
            self._noted |= {claim_id: score / _US_PER_S for claim_id, score in rows}
        except (redis.RedisError, OSError):
            return
