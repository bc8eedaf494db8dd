"""What several people look at, read once for all of them, and only while anybody looks.

It has parts, each of which is written as JSON when it is read and told when it has changed. Quick parts come from
memory; slow ones may have to wait for the bucket, and keep no quick one waiting.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

QUICK_PAUSE_S: Final = 1.0
SLOW_PAUSE_S: Final = 2.0
REST: Final = 10
"""After the slow parts have taken a time, they rest so many times as long: a bucket that is slow has more to do."""

LONGEST_PAUSE_S: Final = 30.0

Parts = Mapping[str, Any]


class Feed:
    """Parts by name, as JSON values; ``wall`` gives the Unix seconds that are told with them.

    ``clock`` measures how long the slow ones take. What a reader raises goes to ``on_failure``, and the parts stay.
    """

    def __init__(
        self,
        quick: Callable[[], Parts],
        slow: Callable[[], Awaitable[Parts]],
        *,
        wall: Callable[[], float],
        clock: Callable[[], float],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self.watchers = 0
        self._quick = quick
        self._slow = slow
        self._wall = wall
        self._clock = clock
        self._on_failure = on_failure
        self.version = 0
        self._written: dict[str, tuple[str, int]] = {}
        self._turned: asyncio.Future[None] | None = None
        self._works: list[asyncio.Task[None]] = []
        self._reading = asyncio.Lock()
        self._hurried = asyncio.Event()
        self._slow_at = float("-inf")

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Keep the parts fresh meanwhile."""
        self.watchers += 1
        if self.watchers == 1:
            self._written.clear()  # nobody kept it fresh
            self._take(self._quick)
            self._works = [asyncio.create_task(work) for work in (self._look(), self._ask())]
        try:
            yield
        finally:
            self.watchers -= 1
            if not self.watchers:
                for work in self._works:
                    work.cancel()

    @property
    def turned(self) -> asyncio.Future[None]:
        """Done when there is something new to tell."""
        if self._turned is None or self._turned.done():
            self._turned = asyncio.get_running_loop().create_future()
        return self._turned

    def since(self, version: int) -> str:
        """What has changed since that version, as JSON: ``""`` for nothing, and all of it since 0."""
        told = [f'"{name}":{text}' for name, (text, at) in self._written.items() if at > version]
        text = "{" + ",".join((f'"now":{self._wall():.3f}', *told)) + "}"
        return text if told else ""

    def hurry(self) -> None:
        """Read the slow parts again at once, if anybody looks: something has been done to them."""
        self._slow_at = float("-inf")
        self._hurried.set()

    async def whole(self) -> str:
        """All parts as JSON, as fresh as if somebody looked."""
        if not self.watchers:
            self._take(self._quick)
        async with self._reading:
            if self._clock() - self._slow_at >= SLOW_PAUSE_S and not self.watchers:
                await self._read_slow()
        return self.since(0)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(QUICK_PAUSE_S)
            self._take(self._quick)

    async def _ask(self) -> None:
        while True:
            begun = self._clock()
            async with self._reading:
                await self._read_slow()
            took_s = self._clock() - begun
            with suppress(TimeoutError):
                async with asyncio.timeout(min(LONGEST_PAUSE_S, max(SLOW_PAUSE_S - took_s, REST * took_s))):
                    await self._hurried.wait()
            self._hurried.clear()

    async def _read_slow(self) -> None:
        try:
            read = await self._slow()
        except Exception as error:  # noqa: BLE001 - who looks must not end for all others what fails once
            self._on_failure(error)
        else:
            self._take(lambda: read)
            self._slow_at = self._clock()

    def _take(self, read: Callable[[], Parts]) -> None:
        try:
            written = {name: json.dumps(value, separators=(",", ":")) for name, value in read().items()}
        except Exception as error:  # noqa: BLE001 - as above
            self._on_failure(error)
            return
        new = {name: text for name, text in written.items() if self._written.get(name, ("", 0))[0] != text}
        if not new:
            return
        self.version += 1
        self._written |= {name: (text, self.version) for name, text in new.items()}
        if self._turned is not None and not self._turned.done():
            self._turned.set_result(None)
