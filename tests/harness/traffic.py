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
        self._idle: list[tuple[float, asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(ANSWER_S + 5)

    def seen(self) -> Counter[Outcome]:
        """The answers so far."""
        return self.outcomes.copy()

    def next_answers(self, count: int) -> Counter[Outcome]:
        """The answers from now on: ``count`` of them or a few more."""
        before = self.seen()
        goal = before.total() + count
        timeout_s = 60 + 2 * count / self._rate
        wait_for(lambda: self.outcomes.total() >= goal, timeout_s=timeout_s, what=f"{count} more answers")
        return self.seen() - before

    async def _run(self) -> None:
        begun = time.monotonic()
        free = asyncio.Semaphore(MOST_CONNECTIONS)
        async with asyncio.TaskGroup() as under_way:
            for number in range(int(MOST_S * self._rate)):
                await asyncio.sleep(begun + number / self._rate - time.monotonic())
                if self._over.is_set():
                    break
                await free.acquire()
                task = under_way.create_task(self._ask(self._methods.choice(("POST", "GET"))))
                task.add_done_callback(lambda _: free.release())
        for _, _, writer in self._idle:
            writer.close()

    async def _ask(self, method: str) -> None:
        app, status = "", 0
        with contextlib.suppress(OSError, EOFError, TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                app, status = await self._answer(method)
        self.outcomes[Outcome(method, app, status)] += 1

    async def _answer(self, method: str) -> tuple[str, int]:
        reader, writer = await self._connection()
        is_kept = False
        try:
            length = "Content-Length: 0\r\n" if method == "POST" else ""
            writer.write(f"{method} /work HTTP/1.1\r\nHost: app\r\n{length}\r\n".encode())
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            body, is_kept = await _body(reader, head)
        finally:
            if is_kept:
                self._idle.append((time.monotonic(), reader, writer))
            else:
                writer.close()
        status = int(head.split(" ", 2)[1])
        return ("" if _is_of_balancer(status, body) else body), status

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self._idle:
            since, reader, writer = self._idle.pop()
            if not reader.at_eof() and time.monotonic() - since < KEPT_S:
                return reader, writer
            writer.close()
        return await asyncio.open_connection("127.0.0.1", self._port)


async def _body(reader: asyncio.StreamReader, head: str) -> tuple[str, bool]:
    """The body, and whether the connection can be used again."""
    _, has_length, rest = head.partition("content-length: ")
    if not has_length:
        return (await reader.read()).decode(), False
    body = await reader.readexactly(int(rest.partition("\r\n")[0]))
    return body.decode(), "connection: close" not in head


def _is_of_balancer(status: int, body: str) -> bool:
    return status in {502, 503, 504} or body.startswith("<")


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
