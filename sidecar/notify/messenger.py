"""Sends what people should know of: each alert is at most one message of the fleet.

It only observes, and waits in tasks of its own. Before a sidecar sends, it claims the alert in the store (``SET NX``
with a lifetime): so there is no message if its sender dies before it is sent. While Redis is away nobody can claim. So
the fleet elects beforehand, for ``LEADER_S`` at a time, who says that Redis is away. That an action failed only the
sidecar of that container sees.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from math import inf
from random import Random
from typing import TYPE_CHECKING, Final

from sidecar.core.claims import Unknown
from sidecar.core.fleet.fleet_events import BeatRecord
from sidecar.core.fleet.members import Member
from sidecar.core.life.container import Record
from sidecar.core.types import Entry
from sidecar.notify.messages import Alert, concerned, fields_of, of_action, of_beat, of_step, redis_away
from sidecar.notify.webhook import Outbox

if TYPE_CHECKING:
    from sidecar.config.settings import IdentityConfig
    from sidecar.store.budget import FleetBudget

INTERVAL_S: Final = 1.0
ONCE_S: Final = 3600.0
"""So long no sidecar sends an alert again: a sidecar that was away from the store may see it late."""

CLAIM_S: Final = 20.0
"""How long a message waits for a clear answer to its claim; then it is given up."""

MOST_WAITING: Final = 100
REDIS_AWAY_S: Final = 300.0
LEADER: Final = "message:leader"
LEADER_S: Final = 150.0
LEADER_RETRY_S: Final = 60.0
LOOK_S: Final = 3.0
"""Time to look up the containers for a message."""

_WITHOUT_CONTAINERS: Final = ("redis_unknown", "hold")


class Messenger:
    """Puts the messages of the sidecar ``own`` into ``outbox``.

    ``sample``: the newest redacted error of the app for a cause, or "". ``on_failure`` gets unforeseen exceptions.
    ``clock`` gives monotonic seconds, ``wall`` Unix seconds, ``rng`` spreads the elections.
    """

    def __init__(
        self,
        outbox: Outbox,
        budget: FleetBudget,
        own: IdentityConfig,
        runbook_url: str,
        *,
        sample: Callable[[str], str],
        on_failure: Callable[[Exception], None],
        rng: Random,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._outbox = outbox
        self._budget = budget
        self._own = own
        self._runbook_url = runbook_url
        self._sample = sample
        self._on_failure = on_failure
        self._rng = rng
        self._clock = clock
        self._wall = wall
        self._unclaimed: deque[tuple[Alert, float]] = deque(maxlen=MOST_WAITING)
        self._leads_until = -inf
        self._next_election = 0.0
        self._answered_at = -inf
        self._is_away_told = False

    def notice(self, record: Record) -> None:
        """Observe a step of the controller."""
        self._add(of_step(record))

    def beaten(self, record: BeatRecord) -> None:
        """Observe the answer to a beat."""
        now = self._clock()
        if not isinstance(record.answer, Unknown):
            self._answered_at, self._is_away_told = now, False
        elif REDIS_AWAY_S <= (away_s := now - self._answered_at) < inf and not self._is_away_told:
            self._is_away_told = True
            if self._leads_until > self._answered_at:
                self._add([redis_away(record.answer.error, away_s)])
        self._add(of_beat(record))

    def acted(self, entry: Entry) -> None:
        """Observe the result of the action that should have the container restarted."""
        if entry.what == "action_failed":
            self._add([of_action(entry, self._own.instance)])

    def _add(self, alerts: Iterable[Alert]) -> None:
        now = self._clock()
        self._unclaimed += [(alert, now) for alert in alerts]

    async def run(self) -> None:
        """Look and send until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._repeat(self._outbox.run))
            await self._repeat(self._turn)

    async def _repeat(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except Exception as error:  # noqa: BLE001 - messages must not end the sidecar
                self._on_failure(error)
            await asyncio.sleep(INTERVAL_S)

    async def _turn(self) -> None:
        """Send what this sidecar has to send."""
        for _ in range(len(self._unclaimed)):
            alert, since = self._unclaimed.popleft()
            is_sender = not alert.claim or await self._budget.first(f"message:{alert.claim}", ONCE_S)
            if isinstance(is_sender, Unknown):
                if self._clock() - since < CLAIM_S:
                    self._unclaimed.append((alert, since))
            elif is_sender:
                self._outbox.put(await self._message(alert))
        if (now := self._clock()) >= self._next_election:
            await self._elect(now)

    async def _elect(self, now: float) -> None:
        """Claim the leadership. It ends before the claim does, so that there are never two leaders."""
        if await self._budget.first(LEADER, LEADER_S) is True:
            self._leads_until = now + LEADER_S
            self._next_election = self._clock() + LEADER_S + 1  # after the claim's end: it cannot be prolonged
            return
        self._next_election = now + LEADER_RETRY_S * self._rng.uniform(0.8, 1.2)

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
