"""The queue of messages for one receiver: in order, bounded, with retries until a message is too old."""

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
LATE_S: Final = 10.0
"""From this age on another sidecar may have sent what comes after a message: see ``Messenger``."""

GIVE_UP_S: Final = 3600.0
"""The maximum age of a message. The incident that it reports may be what keeps it from being sent."""

FIRST_RETRY_S: Final = 1.0
MAX_RETRY_S: Final = 60.0
JITTER: Final = 0.5


class Delivery(NamedTuple):
    """The outcome of an attempt: ``sent``, ``failed`` (will be tried again), ``dropped`` or ``superseded``.

    ``superseded``: it is late, and another sidecar may have sent what comes after it.

    ``detail``: the hosts that accepted it, or why none did. ``is_repeat``: the message had been sent before.
    """

    receiver: str
    outcome: str
    message: Message
    detail: str = ""
    is_repeat: bool = False


class Outbox:
    """The queue of one receiver, and the task that empties it. ``clock`` gives monotonic seconds.

    ``observe`` receives the outcome of every attempt. A late message that ``is_current`` denies is dropped.
    """

    def __init__(
        self, receiver: Receiver, *, clock: Callable[[], float], rng: Random, observe: Callable[[Delivery], None]
    ) -> None:
        self.receiver = receiver
        self.is_current: Callable[[Message], bool] = lambda _: True
        self._clock = clock
        self._rng = rng
        self._observe = observe
        self._waiting: deque[tuple[Message, bool, float]] = deque()
        self._not_empty = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, message: Message, *, is_repeat: bool = False) -> None:
        """Append a message; the oldest is dropped if there are too many. A repeat is skipped if anything waits."""
        if is_repeat and self._waiting:
            return
        self._waiting.append((message, is_repeat, self._clock()))
        if len(self._waiting) > LIMIT:
            oldest, _, _ = self._waiting.popleft()
            self._observe(Delivery(self.receiver.name, "dropped", oldest, "too many wait"))
        self._not_empty.set()

    async def run(self) -> None:
        """Send one message after the other until cancelled."""
        while True:
            if not self._waiting:
                self._not_empty.clear()
                await self._not_empty.wait()
            head = self._waiting[0]
            await self._deliver(*head)
            # ``put`` may have dropped it meanwhile, because too many wait.
            if self._waiting and self._waiting[0] is head:
                self._waiting.popleft()

    async def _deliver(self, message: Message, is_repeat: bool, put_at: float) -> None:  # noqa: FBT001 - a field of the queue
        give_up_at = put_at + GIVE_UP_S
        delay_s = FIRST_RETRY_S
        while True:
            if self._clock() - put_at > LATE_S and not self._has_later(message) and not self.is_current(message):
                self._report("superseded", message, "", is_repeat)
                return
            try:
                hosts = await self.receiver.send(message)
            except UndeliveredError as error:
                pause_s = max(delay_s * (1 + JITTER * self._rng.uniform(-1, 1)), error.retry_after_s)
                is_last = is_repeat or error.is_final or self._clock() + pause_s > give_up_at
                self._report("dropped" if is_last else "failed", message, str(error), is_repeat)
                if is_last:
                    return
            except Exception as error:  # noqa: BLE001 - one message that cannot be written must not end the others
                self._report("dropped", message, type(error).__name__, is_repeat)
                return
            else:
                self._report("sent", message, hosts, is_repeat)
                return
            await asyncio.sleep(pause_s)
            delay_s = min(MAX_RETRY_S, 2 * delay_s)

    def _has_later(self, message: Message) -> bool:
        """Whether what comes after it waits here, and so arrives after it."""
        topic = message.notification.topic
        return any(later.notification.topic == topic for later, _, _ in list(self._waiting)[1:])

    def _report(self, outcome: str, message: Message, detail: str, is_repeat: bool) -> None:  # noqa: FBT001 - as above
        self._observe(Delivery(self.receiver.name, outcome, message, detail, is_repeat))
