"""Sends what people should know of: each alert is at most one message of the fleet.

It only observes, and works in tasks of its own. Alerts wait in one bounded queue. The first is claimed in the store
(``SET NX`` with a lifetime) and posted, again and again if need be, before the next has its turn. So a sidecar that
cannot reach the webhook leaves the next alert to another, and there is no message if its sender dies. While Redis is
away nobody can claim: the fleet elects beforehand, for ``LEADER_S`` at a time, who says that Redis is away. That an
action failed only the sidecar of that container sees.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from math import inf
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from sidecar.core.claims import Unknown
from sidecar.core.fleet.fleet_events import BeatRecord
from sidecar.core.fleet.members import Member
from sidecar.core.life.snapshot import Record
from sidecar.core.types import Entry
from sidecar.notify.messages import Alert, concerned, fields_of, of_action, of_beat, of_step, redis_away
from sidecar.notify.webhook import UndeliveredError, Webhook

if TYPE_CHECKING:
    from sidecar.config.settings import IdentityConfig
    from sidecar.store.budget import FleetBudget

ONCE_S: Final = 3600.0
"""So long no sidecar sends an alert again: a sidecar that was away from the store may see it late."""

GIVE_UP_S: Final = 3000.0
"""The maximum age of an alert. What it reports may be what keeps it from being sent. Shorter than ``ONCE_S``, so that
one which has waited finds the claim of the sidecar that has sent it."""

CLAIM_S: Final = 20.0
"""How long an alert waits for a clear answer to its claim; then it is given up."""

CLAIM_RETRY_S: Final = 1.0
MOST_WAITING: Final = 100
FIRST_RETRY_S: Final = 1.0
MAX_RETRY_S: Final = 60.0
AFTER_FAILURE_S: Final = 1.0
REDIS_AWAY_S: Final = 300.0
LEADER: Final = "message:leader"
LEADER_S: Final = 150.0
LEADER_RETRY_S: Final = 60.0
LOOK_S: Final = 3.0
"""Time to look up the containers for a message."""

_WITHOUT_CONTAINERS: Final = ("redis_unknown", "hold")


class Delivery(NamedTuple):
    """The outcome of an attempt to send."""

    outcome: str  # sent, failed (tried again) or dropped
    word: str  # of the alert
    detail: str  # the host of the receiver, or the cause


class Messenger:
    """Sends the messages of the sidecar ``own`` to ``webhook``. Its length: the alerts that wait or are being sent.

    ``sample``: the newest redacted error of the app for a cause, or "". ``observe`` takes the outcomes, ``on_failure``
    unforeseen exceptions. ``clock`` gives monotonic seconds, ``wall`` Unix seconds, ``rng`` spreads elections and
    attempts.
    """

    def __init__(
        self,
        webhook: Webhook,
        budget: FleetBudget,
        own: IdentityConfig,
        runbook_url: str,
        *,
        sample: Callable[[str], str],
        observe: Callable[[Delivery], None],
        on_failure: Callable[[Exception], None],
        rng: Random,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._webhook = webhook
        self._budget = budget
        self._own = own
        self._runbook_url = runbook_url
        self._sample = sample
        self._observe = observe
        self._on_failure = on_failure
        self._rng = rng
        self._clock = clock
        self._wall = wall
        self._waiting: asyncio.Queue[tuple[Alert, float]] = asyncio.Queue(MOST_WAITING)
        self._is_sending = False
        self._leads_until = -inf
        self._answered_at = -inf
        self._is_away_reported = False

    def __len__(self) -> int:
        return self._waiting.qsize() + self._is_sending

    def notice(self, record: Record) -> None:
        """Observe a step of the controller."""
        self._add(of_step(record))

    def beaten(self, record: BeatRecord) -> None:
        """Observe the answer to a beat."""
        now = self._clock()
        if not isinstance(record.answer, Unknown):
            self._answered_at, self._is_away_reported = now, False
        elif REDIS_AWAY_S <= (away_s := now - self._answered_at) < inf and not self._is_away_reported:
            self._is_away_reported = True
            if self._leads_until > self._answered_at:
                self._add([redis_away(record.answer.error, away_s)])
        self._add(of_beat(record))

    def acted(self, entry: Entry) -> None:
        """Observe the result of the action that should have the container restarted."""
        if entry.what == "action_failed":
            self._add([of_action(entry, self._own.instance)])

    def _add(self, alerts: Iterable[Alert]) -> None:
        for alert in alerts:
            if self._waiting.full():
                oldest, _ = self._waiting.get_nowait()
                self._observe(Delivery("dropped", oldest.word, "too many wait"))
            self._waiting.put_nowait((alert, self._clock()))

    async def run(self) -> None:
        """Elect and send until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._repeat(self._elect))
            tasks.create_task(self._repeat(self._send_next))

    async def _repeat(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except Exception as error:  # noqa: BLE001 - messages must not end the sidecar
                self._on_failure(error)
                await asyncio.sleep(AFTER_FAILURE_S)

    async def _elect(self) -> None:
        """Claim the leadership. It ends before the claim does, so that there are never two leaders."""
        begun = self._clock()
        if await self._budget.first(LEADER, LEADER_S) is True:
            self._leads_until = begun + LEADER_S
            await asyncio.sleep(LEADER_S + 1)  # until after the claim's end: it cannot be prolonged
        else:
            await asyncio.sleep(LEADER_RETRY_S * self._rng.uniform(0.8, 1.2))

    async def _send_next(self) -> None:
        alert, since = await self._waiting.get()
        self._is_sending = True
        try:
            if await self._is_sender(alert):
                await self._deliver(await self._message(alert), since + GIVE_UP_S)
        finally:
            self._is_sending = False

    async def _is_sender(self, alert: Alert) -> bool:
        """Claim the alert, if others may send it too; a claim without a clear answer may be another's."""
        give_up_at = self._clock() + CLAIM_S
        answer: bool | Unknown = True
        while alert.claim and isinstance(answer := await self._budget.first(f"message:{alert.claim}", ONCE_S), Unknown):
            if self._clock() >= give_up_at:
                return False
            await asyncio.sleep(CLAIM_RETRY_S)
        return answer is True

    async def _deliver(self, fields: Mapping[str, str], give_up_at: float) -> None:
        """Post until it is taken, with growing pauses, or never will be."""
        delay_s = FIRST_RETRY_S
        while True:
            pause_s = delay_s * self._rng.uniform(0.5, 1.5)
            try:
                outcome, detail = "sent", await self._webhook.send(fields)
            except UndeliveredError as error:
                is_last = error.is_final or self._clock() + pause_s > give_up_at
                outcome, detail = "dropped" if is_last else "failed", str(error)
            self._observe(Delivery(outcome, fields["word"], detail))
            if outcome != "failed":
                return
            await asyncio.sleep(pause_s)
            delay_s = min(MAX_RETRY_S, 2 * delay_s)

    async def _message(self, alert: Alert) -> Mapping[str, str]:
        containers, cause = concerned(alert, await self._members() if alert.word not in _WITHOUT_CONTAINERS else ())
        return fields_of(
            alert,
            self._own,
            self._runbook_url,
            self._wall(),
            containers=containers,
            cause=cause,
            sample=self._sample(cause),
        )

    async def _members(self) -> Sequence[Member]:
        """The fleet; nobody, if it is not known in time."""
        try:
            async with asyncio.timeout(LOOK_S):
                answer = await self._budget.member_list()
        except TimeoutError:
            return ()
        return () if isinstance(answer, Unknown) else answer.members
