"""The sign of life: tells the fleet how the container is, every beat and at once when that changes.

It reads the controller and writes to the budget; what it hears back is the last that is known of the fleet, and a
message to the controller. A beat keeps the way to the bucket open too, so that a claim costs one round trip.

A suspect beats more often, for its claim waits until the fleet has been heard. A container that has many more errors
than it told tells that soon, for the others compare theirs with the median.

A beat without an answer is sent again soon. Once the store answers again no claim is made for somewhat longer than a
beat: it may be another server that knows less, and hears by then from the containers that are down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Final, Protocol

from sidecar.core.fleet import about as members
from sidecar.core.life.container import Container
from sidecar.core.life.detectors import complaint
from sidecar.core.life.events import BeatAnswered, BeatUnanswered
from sidecar.core.life.snapshot import Record, Snapshot
from sidecar.core.types import MANUAL, About, Beat, Evidence, Fleet, Policy, Presence, Unknown

FIRST_AFTER_S: Final = 0.25
"""Importing the client of Redis takes 50 ms of the processor, which belong to the first polls."""

JITTER: Final = 0.1
STALE_BEATS: Final = 3

SUSPECT_BEATS: Final = 5
LEAST_S: Final = 1.0
"""A suspect beats so many times as often as others, but for its changes not more often than this."""

AGAIN_S: Final = 2.0
AGAIN_JITTER: Final = 0.5
"""After a beat without an answer the next one comes this soon, give or take half: the whole fleet does the same."""

RETURN_BEATS: Final = 1.5
"""For so many beats after the store was away no claim is made: in that time every other sidecar has beaten."""

MOVED: Final = 0.5
"""The part of the errors it told last by which their number has to differ for a beat: a storm that fills the window
is told some ten times and not sixty."""

MILLION: Final = 1_000_000

ABOUT_EVERY: Final = 30
"""So many beats after it was told last, what stands about the container is told again: it may have been forgotten."""

STEP_S: Final = 1.0
"""Wall clock and monotonic clock drift apart by less."""


class Beats(Protocol):
    """What the membership needs of a budget."""

    async def beat(self, beat: Beat) -> Fleet | Unknown:
        """Tell the fleet how the container is, and hear how the fleet is."""


class Description:
    """What a person is told of the container, as one line of ``core.members``.

    ``wall`` gives Unix seconds, ``limit`` is of errors in the window, ``version`` that of the sidecar.
    """

    def __init__(self, wall: Callable[[], float], limit: int, version: str) -> None:
        self._wall = wall
        self._limit = limit
        self._version = version
        self._since = self._born = 0.0

    def __call__(self, seen: Snapshot) -> str:
        """The line; it stays the same while nothing happens, whatever the clocks do meanwhile."""
        container = seen.container
        unix = self._wall() - seen.now
        self._since = _steady(self._since, container.since + unix)
        self._born = _steady(self._born, container.born + unix)
        numbers = (seen.share, seen.evidence.errors, self._limit)
        about = About(container.state, int(self._since), container.life, *numbers, self._version, int(self._born))
        return members.pack(about)


def _steady(before: float, now: float) -> float:
    """An instant as it was known before, unless it is another one now."""
    return now if abs(now - before) >= STEP_S else before


class Membership:
    """Beats every ``interval_s`` seconds, by ``JITTER`` of it earlier or later.

    ``told`` hears every answer, and ``put`` brings it to the controller. ``clock`` gives the seconds by which
    ``fleet`` grows stale. ``errors`` is the number in the window now. ``about`` is what else there is to tell, at most a line: told
    when it is news, and when it may have been forgotten.
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        budget: Beats,
        *,
        policy: Policy,
        interval_s: float,
        clock: Callable[[], float],
        rng: Random,
        errors: Callable[[], int],
        put: Callable[[BeatAnswered | BeatUnanswered], None],
        told: Callable[[Fleet | Unknown], None],
        on_failure: Callable[[Exception], None],
        about: Callable[[Snapshot], str] = lambda _: "",
    ) -> None:
        self._snapshot = snapshot
        self._budget = budget
        self._policy = policy
        self._interval_s = interval_s
        self._clock = clock
        self._rng = rng
        self._errors = errors
        self._put = put
        self._told = told
        self._on_failure = on_failure
        self._about = about
        self._known = ""
        self._beats = 0
        self._changed = asyncio.Event()
        self._kind = "unknown"
        self._fleet: Fleet | None = None
        self._heard_at = 0.0
        self._is_away = False
        self._claims_from = 0.0
        self._said: Presence | None = None
        self._last: Beat | None = None

    @property
    def fleet(self) -> Fleet | None:
        """The fleet as it was last heard of, unless that is too long ago."""
        return self._fleet if self.heard_s <= STALE_BEATS * self._interval_s else None

    @property
    def heard_s(self) -> float:
        """How many seconds ago that was."""
        return self._clock() - self._heard_at

    def notice(self, record: Record) -> None:
        """Beat at once when the fleet ought to know of this step."""
        if _shown(record.before) != _shown(record.after):
            self._changed.set()

    def look(self) -> None:
        """Beat if the errors are many more, or many fewer, than was told last; called once a second."""
        limit = self._policy.error_limit
        if not limit or self._last is None:
            return
        if abs(self._errors() - self._last.errors) >= max(limit, MOVED * self._last.errors):
            self._changed.set()

    async def run(self) -> None:
        """Beat until cancelled."""
        await asyncio.sleep(FIRST_AFTER_S)
        while True:
            self._changed.clear()
            try:
                await self.beat()
            except Exception as error:  # noqa: BLE001 - one bad beat must not end the sidecar
                self._on_failure(error)
            await self._wait(self._pause_s())

    def _pause_s(self) -> float:
        spread = self._rng.uniform(-1, 1)
        pause_s = self._regular_s() * (1 + JITTER * spread)
        return min(pause_s, AGAIN_S * (1 + AGAIN_JITTER * spread)) if self._is_away else pause_s

    def _regular_s(self) -> float:
        if self._last is None or self._last.presence is not Presence.SUSPECT:
            return self._interval_s
        return min(self._interval_s, max(LEAST_S, self._interval_s / SUSPECT_BEATS))

    async def beat(self) -> None:
        """Tell the fleet once, unless it has been told goodbye."""
        beat = self._beat()
        if self._said is Presence.GONE is beat.presence:
            return
        self._last = beat
        try:
            answer = await self._budget.beat(beat)
        except Exception:
            self._is_away = True
            self._put(BeatUnanswered("internal", self.fleet))
            raise
        self._confirm(beat.about, answer)
        if isinstance(answer, Fleet):
            self._hear(beat, answer)
        else:
            self._is_away = True
            self._put(BeatUnanswered(answer.error, self.fleet))
        self._told(answer)

    def _hear(self, beat: Beat, answer: Fleet) -> None:
        now = self._clock()
        if self._is_away:
            self._claims_from = now + RETURN_BEATS * self._interval_s
        self._fleet, self._heard_at, self._said, self._is_away = answer, now, beat.presence, False
        wait_s = max(0.0, self._claims_from - now)
        self._put(BeatAnswered(beat.presence, beat.incarnation, answer, wait_s=wait_s))

    def _confirm(self, about: str, answer: Fleet | Unknown) -> None:
        """Remember what is known there now: nothing that was not answered, nor what a lost memory or a server lacks."""
        before = self._fleet
        if about:
            self._known, self._beats = about, 0
        self._beats += 1
        if isinstance(answer, Unknown) or (
            before is not None and (answer.losses, answer.away) != (before.losses, before.away)
        ):
            self._known = ""

    def _news(self, seen: Snapshot) -> str:
        about = self._about(seen)
        return about if about != self._known or self._beats >= ABOUT_EVERY else ""

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _beat(self) -> Beat:
        seen = self._snapshot()
        container = seen.container
        presence = container.presence
        if container.order is not None:
            self._kind = MANUAL
        elif presence is Presence.SUSPECT:
            self._kind = complaint(container.verdict, seen.evidence)
        lease = container.lease if presence is Presence.DOWN else ""
        claim_id = container.latch.claim_id if container.latch else container.claim_id
        return Beat(
            container.instance,
            container.life,
            presence,
            self._kind if presence in (Presence.SUSPECT, Presence.DOWN) and not lease else "unknown",
            claim_id if presence is Presence.DOWN else "",
            first=self._said is None,
            lease=lease,
            about=self._news(seen),
            errors=seen.evidence.errors,
            ratio=_ratio(seen.evidence, self._policy),
            refused=_is_refused(container),
        )


def _ratio(evidence: Evidence, policy: Policy) -> int | None:
    """Failed requests per million, if there were enough to tell."""
    if evidence.requests < max(1, policy.ratio_min_requests):
        return None
    return round(MILLION * evidence.failed / evidence.requests)


def _is_refused(container: Container) -> bool:
    return container.refused and container.presence is Presence.SUSPECT


def _shown(container: Container) -> tuple[Presence, str, bool]:
    return container.presence, container.life, _is_refused(container)
