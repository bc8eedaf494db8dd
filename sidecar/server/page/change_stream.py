"""The status page's data, read once for all viewers, and only while there are viewers.

It has parts by name. The stream writes each as JSON after it was read, and sends it when it has changed. Quick parts
come from memory; slow ones may wait for the shared store, and do not delay the quick ones.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

QUICK_PAUSE_S: Final = 1.0
SLOW_PAUSE_S: Final = 2.0
SLOW_PAUSE_FACTOR: Final = 10
"""The pause after a read of the slow parts is this many times as long as the read, to spare a slow store."""

MAX_PAUSE_S: Final = 30.0

Parts = Mapping[str, Any]


class ChangeStream:
    """Parts by name, as JSON values, from ``quick`` and ``slow``; ``wall`` is the Unix time sent with them.

    ``clock`` measures the slow reads. ``on_failure`` gets the exception of a read, and the parts stay as they were.
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
        self.viewers = 0
        self.version = 0
        self._quick = quick
        self._slow = slow
        self._wall = wall
        self._clock = clock
        self._on_failure = on_failure
        self._written: dict[str, tuple[bytes, int]] = {}
        self._changed: asyncio.Future[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._reading = asyncio.Lock()
        self._hurried = asyncio.Event()
        self._slow_at = float("-inf")

    @contextmanager
    def viewed(self) -> Iterator[None]:
        """Keep the parts fresh while the context lasts."""
        self.viewers += 1
        if self.viewers == 1:
            self._written.clear()  # nothing has kept it fresh
            self._update(self._quick)
            self._tasks = [asyncio.create_task(work) for work in (self._read_quick(), self._read_slow())]
        try:
            yield
        finally:
            self.viewers -= 1
            if not self.viewers:
                for task in self._tasks:
                    task.cancel()

    @property
    def changed(self) -> asyncio.Future[None]:
        """Done when there is something new to send."""
        if self._changed is None or self._changed.done():
            self._changed = asyncio.get_running_loop().create_future()
        return self._changed

    def since(self, version: int) -> list[bytes]:
        """What has changed since that version, as the pieces of a JSON object: everything since 0, none for nothing."""
        parts = [(name, text) for name, (text, at) in self._written.items() if at > version]
        if not parts:
            return []
        pieces = [b'{"now":%.3f' % self._wall()]
        for name, text in parts:
            pieces += [b',"%b":' % name.encode(), text]
        return [*pieces, b"}"]

    def hurry(self) -> None:
        """Read the slow parts at once if there are viewers: an order has changed them."""
        self._slow_at = float("-inf")
        self._hurried.set()

    async def whole(self) -> list[bytes]:
        """All parts, as the pieces of a JSON object, as fresh as with viewers."""
        await self._refresh()
        return self.since(0)

    async def values(self, names: str) -> AsyncIterator[tuple[str, Any]]:
        """The parts whose names match the pattern, as fresh as with viewers; each in a turn of the loop of its own."""
        await self._refresh()
        for name, (text, _) in [*self._written.items()]:
            if re.fullmatch(names, name):
                yield name, json.loads(text)
                await asyncio.sleep(0)

    async def _refresh(self) -> None:
        if not self.viewers:
            self._update(self._quick)
        async with self._reading:
            if self._clock() - self._slow_at >= SLOW_PAUSE_S and not self.viewers:
                await self._update_slow()

    async def _read_quick(self) -> None:
        while True:
            await asyncio.sleep(QUICK_PAUSE_S)
            self._update(self._quick)

    async def _read_slow(self) -> None:
        while True:
            begun = self._clock()
            async with self._reading:
                await self._update_slow()
            took_s = self._clock() - begun
            pause_s = max(SLOW_PAUSE_S - took_s, SLOW_PAUSE_FACTOR * took_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(min(MAX_PAUSE_S, pause_s)):
                    await self._hurried.wait()
            self._hurried.clear()

    async def _update_slow(self) -> None:
        try:
            written = {}
            for name, value in (await self._slow()).items():
                written[name] = _json(value)
                await asyncio.sleep(0)  # health answers go between the parts
        except Exception as error:  # noqa: BLE001 - a failure must not end the stream of all viewers
            self._on_failure(error)
        else:
            self._take(written)
            self._slow_at = self._clock()

    def _update(self, read: Callable[[], Parts]) -> None:
        try:
            self._take({name: _json(value) for name, value in read().items()})
        except Exception as error:  # noqa: BLE001 - as above
            self._on_failure(error)

    def _take(self, written: Mapping[str, bytes]) -> None:
        new = {name: text for name, text in written.items() if self._written.get(name, (b"", 0))[0] != text}
        if not new:
            return
        self.version += 1
        self._written |= {name: (text, self.version) for name, text in new.items()}
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
