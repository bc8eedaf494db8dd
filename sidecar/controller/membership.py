"""The beats of the sidecar: they report the container's state to the fleet, at intervals and at once after a change.

The controller hands in each snapshot, and each answer of the store is a message to the controller. A beat also keeps
the connection to the store open, so that a claim costs one round trip.

A suspect beats more often, because it may claim only after a beat has announced it. A container with many more errors
than in its last beat beats at once, because the others compare their errors with the median.

A sidecar whose connection to the store has ended beats anew within two seconds: the store may be another process that
lacks the grant of this container, and the fleet waits only for a short time for such news.

After a beat without an answer the next comes soon. After the store answers again, the sidecar waits ``RETURN_BEATS``
beat intervals before a claim: the store may be another server that knows less, and by then the containers that are down
have beaten there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from sidecar.controller.beat_content import beat_of, is_refused
from sidecar.controller.runtime import Runtime
from sidecar.core.claims import Beat, Fleet, Presence, Unknown
from sidecar.core.fleet.fleet_events import BeatRecord, FleetWatch
from sidecar.core.life.events import BeatAnswered, BeatUnanswered
from sidecar.core.life.snapshot import Snapshot

FIRST_AFTER_S: Final = 0.25
"""The import of the Redis client takes 50 ms of CPU time; the first polls come before it. A suspect does not wait."""

JITTER: Final = 0.1
STALE_BEATS: Final = 3

SUSPECT_BEATS: Final = 5
LEAST_S: Final = 1.0
"""A suspect beats ``SUSPECT_BEATS`` times as often as others, but not more often than this except for changes."""

AGAIN_S: Final = 2.0
AGAIN_JITTER: Final = 0.5
"""Delay after a beat without an answer, give or take half, because the whole fleet beats again then."""

LOST_S: Final = 1.0
"""Delay of a beat after a connection has ended, give or take half, because those of the whole fleet end together."""

RETURN_BEATS: Final = 1.5
"""Beat intervals without claims after the store was away: in that time every other sidecar has beaten."""

MOVED: Final = 0.5
"""A beat comes at once when the errors differ by this part from those in the last beat: a storm that fills the window
costs about ten beats and not sixty."""


class Membership:
    """Beats every ``interval_s`` seconds, give or take ``JITTER`` of it.

    ``send`` reports the container's state to the fleet, and returns the state of the fleet. ``put`` passes each answer
    to the controller, ``on_answer`` to observers. ``lost`` is set when a connection to the store has ended, until a
    beat. ``describe`` gives a line about the container for people.
    """

    def __init__(
        self,
        send: Callable[[Beat], Awaitable[Fleet | Unknown]],
        runtime: Runtime,
        *,
        error_limit: int,
        interval_s: float,
        put: Callable[[BeatAnswered | BeatUnanswered], None],
        on_answer: Callable[[BeatRecord], None],
        describe: Callable[[Snapshot], str] = lambda _: "",
        lost: asyncio.Event | None = None,
    ) -> None:
        self._send = send
        self._error_limit = error_limit
        self._interval_s = interval_s
        self._clock, _, self._rng, self._on_failure = runtime
        self._put = put
        self._on_answer = on_answer
        self._watch = FleetWatch()
        self._describe = describe
        self._lost = lost or asyncio.Event()
        self._snapshot: Snapshot | None = None
        self._changed = asyncio.Event()
        self._last: Beat | None = None  # the last that was sent
        self._is_away = False  # whether that had no answer
        self._fleet: Fleet | None = None
        self._answered_at = 0.0
        self._claims_from = 0.0  # until then the suspect waits, because the store was away

    @property
    def fleet(self) -> Fleet | None:
        """The fleet by the last answer, unless that is too old."""
        return self._fleet if self.fleet_age_s <= STALE_BEATS * self._interval_s else None

    @property
    def last_fleet(self) -> Fleet | None:
        """The fleet by the last answer, however old."""
        return self._fleet

    @property
    def fleet_age_s(self) -> float:
        """Seconds since the last answer."""
        return self._clock() - self._answered_at

    def update(self, snapshot: Snapshot) -> None:
        """Take the newest snapshot; beat at once if the fleet has to know what has changed since the last beat."""
        self._snapshot = snapshot
        if self._is_news(snapshot):
            self._changed.set()

    def _is_news(self, snapshot: Snapshot) -> bool:
        container, last = snapshot.container, self._last
        if last is None:
            return container.presence is Presence.SUSPECT
        news = (container.presence, container.life, is_refused(container))
        if news != (last.presence, last.incarnation, last.refused):
            return True
        limit = self._error_limit
        return limit > 0 and abs(snapshot.evidence.errors - last.errors) >= max(limit, MOVED * last.errors)

    async def run(self) -> None:
        """Beat until cancelled."""
        await self._wait(FIRST_AFTER_S)
        while True:
            self._changed.clear()
            try:
                await self.beat()
            except Exception as error:  # noqa: BLE001 - one bad beat must not end the sidecar
                self._on_failure(error)
            await self._rest(self._pause_s())

    def _pause_s(self) -> float:
        pause_s, spread = self._interval_s, self._rng.uniform(-1, 1)
        if self._last is not None and self._last.presence is Presence.SUSPECT:
            pause_s = min(pause_s, max(LEAST_S, pause_s / SUSPECT_BEATS))
        pause_s *= 1 + JITTER * spread
        return min(pause_s, AGAIN_S * (1 + AGAIN_JITTER * spread)) if self._is_away else pause_s

    async def beat(self) -> None:
        """Beat once, unless there is no snapshot yet, or the fleet knows already that the sidecar stops."""
        if self._snapshot is None or self._has_ended():
            return
        beat = beat_of(self._snapshot, first=self._fleet is None, about=self._describe(self._snapshot))
        self._last = beat
        was_away, self._is_away = self._is_away, True  # until the answer
        try:
            answer = await self._send(beat)
        except Exception:
            self._put(BeatUnanswered("internal", self.fleet))
            raise
        if isinstance(answer, Fleet):
            self._take(beat, answer, was_away=was_away)
        else:
            self._put(BeatUnanswered(answer.error, self.fleet))
        self._on_answer(self._watch.record(answer, self._clock()))

    def _has_ended(self) -> bool:
        """Whether the store has answered the last beat, which says that the sidecar stops."""
        return self._last is not None and self._last.presence is Presence.GONE and not self._is_away

    def _take(self, beat: Beat, fleet: Fleet, *, was_away: bool) -> None:
        now = self._clock()
        if was_away:
            self._claims_from = now + RETURN_BEATS * self._interval_s
        self._fleet, self._answered_at, self._is_away = fleet, now, False
        self._put(BeatAnswered(beat.presence, beat.incarnation, fleet, wait_s=max(0.0, self._claims_from - now)))

    async def _rest(self, seconds: float) -> None:
        """Wait for the next beat: for so many seconds at most, until a change, or until a connection has ended."""
        if self._is_away:
            await self._wait(seconds)
            return
        until = self._clock() + seconds
        await self._wait(seconds, self._lost)
        if self._lost.is_set():
            spread_s = LOST_S * (1 + AGAIN_JITTER * self._rng.uniform(-1, 1))
            await self._wait(min(spread_s, until - self._clock()))

    async def _wait(self, seconds: float, *others: asyncio.Event) -> None:
        """Wait for a change, or for one of the other events; for so many seconds at most."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self._changed, *others)]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
