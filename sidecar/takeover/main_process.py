"""The time of a main: it tells its standby what changes, and hands over to it when its time is up."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, Gauge

from sidecar.core.types import Ping, Sample
from sidecar.net.threads import in_thread
from sidecar.runlock.flock import LockError
from sidecar.takeover import state_transfer
from sidecar.takeover.election import Succession, app, shared
from sidecar.takeover.handover import Offer
from sidecar.telemetry.log import logger

if TYPE_CHECKING:
    import socket

    from sidecar.app.listeners import Doors
    from sidecar.config.settings import Settings
    from sidecar.controller.controller import Controller
    from sidecar.controller.journal import Journal
    from sidecar.core.life.snapshot import Record
    from sidecar.core.types import Policy, Report
    from sidecar.takeover.past import Past
    from sidecar.telemetry.observers import Observers

CALM_S: Final = 1.0
"""How often the state is told when nothing more than counts have changed, and the past at most."""

SOON_S: Final = 0.002
"""How soon errors are told: the controller has taken them in then, and the few that come together are told at once."""

CALM_SHARE: Final = 100
SOON_SHARE: Final = 10
"""What takes long to write down is told less often: for one part in so many of the time."""

RETRY_S: Final = 3.0
LEAVE_S: Final = 0.3
LOOK_S: Final = 2.0
MOST_OVER: Final = 8
TURNS: Final = 8
"""Turns of the loop in which what was accepted is a connection, and what was reported is counted."""


def count_ready(registry: CollectorRegistry, is_ready: Callable[[], bool]) -> None:
    """Show on the page of metrics whether somebody is there to hand over to."""
    ready = Gauge("arbiter_standby_ready", "Whether a standby waits to take over.", registry=registry)
    ready.set_function(is_ready)


class Reign:
    """What is different for a sidecar that has a run lock, from its first answer to its last."""

    def __init__(
        self, settings: Settings, succession: Succession, controller: Controller, policy: Policy, told: Observers
    ) -> None:
        self._succession = succession
        self._lifetime_s = settings.run_lifetime
        self._addresses = shared(settings)
        self._app = app(settings)
        self._controller = controller
        self._policy = policy
        self._told = told
        self._over = deque(succession.over, maxlen=MOST_OVER)
        self._offer: Offer | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._told_at = 0.0
        self._took_s = self._last_took_s = 0.0
        self._past: Past | None = None
        self._past_mark: object = None
        self._past_timer: asyncio.TimerHandle | None = None
        self._past_told_at = 0.0
        self._past_took_s = 0.0
        if settings.standby:  # or nobody expects one
            count_ready(told.metrics.registry, lambda: self.is_ready)

    @property
    def is_ready(self) -> bool:
        """Whether somebody is there to hand over to."""
        return self._offer is not None and self._offer.is_ready

    # -- telling ----------------------------------------------------------------------------------------------

    def offer(self, reports: Sequence[Report]) -> bool:
        """Hand reports to the controller, and soon tell the standby what they changed."""
        taken = self._controller.inbox.offer(reports)
        if taken and self._offer is not None and self._offer.is_heard:
            if any(map(_is_error, reports)):
                self._tell_in(SOON_SHARE * self._took_s)
            else:
                self._tell_in(max(CALM_S, CALM_SHARE * self._took_s))
        return taken

    def notice(self, record: Record) -> None:
        """Tell a step: at once when the state is another, before anybody can see it at a door."""
        if record.before.latch is not None and record.after.latch is None:
            self._over.append(state_transfer.word_of(record.before.latch))
        if _shown(record.before) != _shown(record.after):
            self._tell()
            self._tell_past_in(SOON_SHARE * self._past_took_s)
        elif self._offer is not None and self._offer.is_heard:
            self._tell_in(max(CALM_S, CALM_SHARE * self._took_s))

    def _tell_in(self, interval_s: float) -> None:
        loop = asyncio.get_running_loop()
        due = max(loop.time() + SOON_S, self._told_at + interval_s)
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        # One turn later: what came before this time is due is counted then, however busy the loop is.
        self._timer = loop.call_at(due, loop.call_soon, self._tell)

    def _tell(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._offer is None or not self._offer.is_heard:
            return
        begun = time.thread_time()
        self._offer.tell()
        # The lesser of two, for the first time is slow, and the errors of the next 200 ms would wait for that.
        took_s = time.thread_time() - begun
        self._took_s, self._last_took_s = min(took_s, self._last_took_s), took_s
        self._told_at = asyncio.get_running_loop().time()
        if not self._controller.inbox.is_empty:  # it came after our time was due, and is not counted yet
            self._tell_in(SOON_SHARE * self._took_s)
        self._tell_past_in(max(CALM_S, CALM_SHARE * self._past_took_s))

    def _tell_past_in(self, interval_s: float) -> None:
        """So long after the last time, and never within a step: not all have noticed it yet."""
        if self._past is None or self._offer is None or not self._offer.is_heard:
            return
        due = self._past_told_at + interval_s
        if self._past_timer is not None:
            if self._past_timer.when() <= due:
                return
            self._past_timer.cancel()
        self._past_timer = asyncio.get_running_loop().call_at(due, self._tell_past)

    def _tell_past(self) -> None:
        self._past_timer = None
        if self._past is None or self._offer is None or not self._offer.is_heard:
            return
        mark = self._past.mark()
        if mark == self._past_mark:
            return
        begun = time.thread_time()
        self._offer.tell_past()
        self._past_took_s = time.thread_time() - begun
        self._past_told_at = asyncio.get_running_loop().time()
        self._past_mark = mark

    def _frozen_past(self) -> dict[str, Any] | None:
        try:
            return self._past.freeze(time.monotonic(), time.time()) if self._past is not None else None
        except Exception as error:  # noqa: BLE001 - as below
            self._told.failed("handover", error)
            return None

    def _state(self) -> dict[str, Any] | None:
        try:
            return state_transfer.freeze(self._controller, time.monotonic(), self._policy, self._over)
        except Exception as error:  # noqa: BLE001 - a standby that knows less is no reason to answer worse
            self._told.failed("handover", error)
            return None

    # -- beginning and end ------------------------------------------------------------------------------------

    def remember(self, past: Past) -> None:
        """Tell this past too from now on; it begins where the main before ended, if that can be used."""
        self._past = past
        told, self._succession.past = self._succession.past, None
        if told is None:
            return
        content, at = told
        try:
            past.thaw(content, at, time.time() - (time.monotonic() - at))
        except state_transfer.RefusedError as error:
            self._told.failed("handover", error)

    async def begin(self, doors: Doors, journal: Journal) -> None:
        """Go on with the connections of the main before, wait for a standby, and have on disk what we know."""
        for name, connection in self._succession.connections:
            await doors.adopt(name, connection)
        if self._succession.is_second:
            fields = {"connections": len(self._succession.connections), "state": self._controller.container.state}
            logger.info("took over", extra={"fields": fields})
        try:
            self._open(doors)
        except OSError as error:
            self._told.failed("handover", error)
        container = self._controller.container
        if self._succession.is_second and (container.latch or container.asked or self._over):
            await journal.save(self._controller.memory())  # who was main before may not have come to that
        await self._keep(doors)

    async def _keep(self, doors: Doors) -> None:
        """Have lock and offer where others look for them, whoever removes them: or the next one were a main too."""
        while not doors.are_left:
            await asyncio.sleep(LOOK_S)
            try:
                if not await in_thread(self._succession.is_in_place) and not doors.are_left:
                    self._retake(doors)
            except (OSError, LockError) as error:
                self._told.failed("handover", error)

    def _retake(self, doors: Doors) -> None:
        self._succession.retake()
        if self._offer is not None:
            self._offer.close(keep_path=True)
        self._open(doors)
        logger.warning("run lock taken anew: its files had been removed")

    def _open(self, doors: Doors) -> None:
        offer = Offer(
            self._succession.directory,
            sockets=doors.descriptors,
            addresses=self._addresses,
            app=self._app,
            state=self._state,
            past=self._frozen_past,
            on_failure=lambda error: self._told.failed("handover", error),
        )
        offer.open()
        self._offer = offer

    async def ends(self, stop: asyncio.Event) -> bool:
        """Wait for the end; whether there is a standby to hand over to.

        It comes when ``stop`` is set. Once the lifetime is over it comes as soon as there is a standby.
        """
        wait_s = self._lifetime_s or None
        while not stop.is_set():
            try:
                async with asyncio.timeout(wait_s):
                    await stop.wait()
            except TimeoutError:
                if self.is_ready:
                    return True
                wait_s = RETRY_S
        return self.is_ready

    async def hand_over(self, doors: Doors, journal: Journal) -> None:
        """Answer what is in flight, give all else to the standby, and let go of the lock."""
        doors.accept_no_more()
        connections = await _left(doors)
        for listener in doors.listeners:
            await listener.close(keep_paths=True)
        await _turns()
        await journal.settled(LEAVE_S)
        assert self._offer is not None  # noqa: S101 - who has no offer has no standby to hand over to
        await self._offer.give(connections)
        self._offer.close(keep_path=True)
        self._succession.lock.release()
        for _, connection in connections:
            connection.close()
        logger.info("handed over", extra={"fields": {"connections": len(connections)}})

    def close(self) -> None:
        """End without a successor, or after one was found."""
        for timer in (self._timer, self._past_timer):
            if timer is not None:
                timer.cancel()
        if self._offer is not None and self._succession.lock.is_held:
            self._offer.close()


async def _left(doors: Doors) -> list[tuple[str, socket.socket]]:
    """Every connection that comes between two requests within ``LEAVE_S``."""
    await _turns()
    connections = doors.let_go()
    ends_at = time.monotonic() + LEAVE_S
    while doors.is_busy and time.monotonic() < ends_at:
        await asyncio.sleep(0.001)
        connections += doors.let_go()
    return connections


async def _turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


def _is_error(report: Report) -> bool:
    return bool(report.errors) if isinstance(report, (Ping, Sample)) else False


def _shown(container: Any) -> tuple[object, ...]:
    return container.state, container.latch, container.life, container.app_start
