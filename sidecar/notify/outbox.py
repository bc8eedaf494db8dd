"""What waits to be sent to one receiver: in order, bounded, tried again for a while, and then given up."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

from sidecar.notify.message import Message
from sidecar.notify.posting import UndeliveredError
from sidecar.notify.receivers import Receiver

LIMIT: Final = 100
GIVE_UP_S: Final = 3600.0
"""So old a message may become: what it is about may be what keeps it from leaving, and then lasts for a while."""

FIRST_S: Final = 1.0
MOST_S: Final = 60.0
JITTER: Final = 0.5


class Posted(NamedTuple):
    """What became of a message, or of one attempt: ``sent``, ``failed`` (tried again), ``dropped``.

    ``detail``: the hosts that have it, or why they do not. ``is_repeat``: it had been sent before.
    """

    receiver: str
    outcome: str
    message: Message
    detail: str = ""
    is_repeat: bool = False


class Outbox:
    """The queue of one receiver and the task that empties it. ``clock`` gives monotonic seconds.

    ``told`` hears what becomes of every message.
    """

    def __init__(
        self, receiver: Receiver, *, clock: Callable[[], float], rng: Random, told: Callable[[Posted], None]
    ) -> None:
        self.receiver = receiver
        self._clock = clock
        self._rng = rng
        self._told = told
        self._waiting: deque[tuple[Message, bool, float]] = deque()
        self._has_news = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, message: Message, *, is_repeat: bool = False) -> None:
        """Take a message in; the oldest is dropped when there are too many. A repeat waits behind nothing."""
        if is_repeat and self._waiting:
            return
        self._waiting.append((message, is_repeat, self._clock()))
        if len(self._waiting) > LIMIT:
            oldest, _, _ = self._waiting.popleft()
            self._told(Posted(self.receiver.name, "dropped", oldest, "too many wait"))
        self._has_news.set()

    async def run(self) -> None:
        """Send one after the other until cancelled."""
        while True:
            if not self._waiting:
                self._has_news.clear()
                await self._has_news.wait()
            head = self._waiting[0]
            await self._deliver(*head)
            # While it was on its way, the box may have become too full for it.
            if self._waiting and self._waiting[0] is head:
                self._waiting.popleft()

    async def _deliver(self, message: Message, is_repeat: bool, put_at: float) -> None:  # noqa: FBT001 - of what waits
        give_up_at = put_at + GIVE_UP_S
        delay_s = FIRST_S
        while True:
            try:
                hosts = await self.receiver.send(message)
            except UndeliveredError as error:
                pause_s = max(delay_s * (1 + JITTER * self._rng.uniform(-1, 1)), error.retry_after_s)
                is_over = is_repeat or error.is_final or self._clock() + pause_s > give_up_at
                self._tell("dropped" if is_over else "failed", message, str(error), is_repeat)
                if is_over:
                    return
            except Exception as error:  # noqa: BLE001 - one message that cannot be written must not end the others
                self._tell("dropped", message, type(error).__name__, is_repeat)
                return
            else:
                self._tell("sent", message, hosts, is_repeat)
                return
            await asyncio.sleep(pause_s)
            delay_s = min(MOST_S, 2 * delay_s)

    def _tell(self, outcome: str, message: Message, detail: str, is_repeat: bool) -> None:  # noqa: FBT001 - as above
        self._told(Posted(self.receiver.name, outcome, message, detail, is_repeat))
