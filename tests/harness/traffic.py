"""Users of the app: requests at a constant rate through the balancer, counted by their answers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Final, NamedTuple, Self

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector

from harness.waiting import wait_for

MOST_S: Final = 120.0
MOST_CONNECTIONS: Final = 64
ANSWER_S: Final = 5.0
KEPT_S: Final = 5.0
"""How long a connection may be idle. Later the balancer may close it while a request is on its way."""


class Outcome(NamedTuple):
    """The answer to a user: ``app`` answered, or the balancer if it is empty; ``status`` 0 is no answer."""

    method: str
    app: str
    status: int


class Traffic:
    """``rate`` requests a second on keep-alive connections, half of them POST, for at most 120 s.

    A request is sent when it is due, whether or not earlier ones have been answered. Its method is random (seeded):
    alternating methods would follow the order in which the balancer chooses servers.
    """

    def __init__(self, port: int, rate: float = 300) -> None:
        self.outcomes: Counter[Outcome] = Counter()
        self._port = port
        self._rate = rate
        self._methods = Random(7)
        self._over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(ANSWER_S + 5)

    def so_far(self) -> Counter[Outcome]:
        """The answers so far."""
        return self.outcomes.copy()

    def next_answers(self, count: int) -> Counter[Outcome]:
        """The answers from now on: ``count`` of them or a few more."""
        before = self.so_far()
        goal = before.total() + count
        timeout_s = 60 + 2 * count / self._rate
        wait_for(lambda: self.outcomes.total() >= goal, timeout_s=timeout_s, what=f"{count} more answers")
        return self.so_far() - before

    async def _run(self) -> None:
        begun = time.monotonic()
        connector = TCPConnector(limit=MOST_CONNECTIONS, keepalive_timeout=KEPT_S)
        timeout = ClientTimeout(total=ANSWER_S)
        async with (
            ClientSession(f"http://127.0.0.1:{self._port}", connector=connector, timeout=timeout) as users,
            asyncio.TaskGroup() as under_way,
        ):
            for number in range(int(MOST_S * self._rate)):
                await asyncio.sleep(begun + number / self._rate - time.monotonic())
                if self._over.is_set():
                    break
                under_way.create_task(self._ask(users, self._methods.choice(("POST", "GET"))))

    async def _ask(self, users: ClientSession, method: str) -> None:
        app, status = "", 0
        with contextlib.suppress(ClientError, TimeoutError):
            async with users.request(method, "/work") as answer:
                app, status = await answer.text(), answer.status
        is_of_balancer = status in {502, 503, 504} or app.startswith("<")
        self.outcomes[Outcome(method, "" if is_of_balancer else app, status)] += 1


def failed(outcomes: Counter[Outcome], method: str) -> float:
    """The share of the requests with this method whose status was not 200."""
    by_status = Counter[bool]()
    for outcome, count in outcomes.items():
        if outcome.method == method:
            by_status[outcome.status == 200] += count
    return by_status[False] / by_status.total()


def retried(outcomes: Counter[Outcome], served: Mapping[str, int]) -> int:
    """How often the balancer sent a request again: the apps served ``served``, the users sent ``outcomes``."""
    return sum(served.values()) - outcomes.total()


def lost(outcomes: Counter[Outcome]) -> dict[Outcome, int]:
    """The requests that no app has answered."""
    return {outcome: count for outcome, count in outcomes.items() if not outcome.app}
