"""The main of a run lock: it sends its state to the standby, and hands over to it at the end."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from sidecar.core.types import ErrorReport, Sample
from sidecar.net.threads import in_thread
from sidecar.runlock.flock import LockError
from sidecar.takeover import state_transfer
from sidecar.takeover.handover import HandoverServer
from sidecar.telemetry.log import logger

if TYPE_CHECKING:
    import socket

    from sidecar.controller.container_controller import Controller
    from sidecar.controller.journal import Journal
    from sidecar.core.life.container import Container
    from sidecar.core.life.snapshot import Record
    from sidecar.core.types import Policy, Report
    from sidecar.server.listeners import Listeners
    from sidecar.takeover.election import Takeover

CALM_INTERVAL_S: Final = 1.0
"""Interval at which the state is sent while only counts of successes change."""

ERROR_DELAY_S: Final = 0.002
"""Delay before errors are sent: meanwhile the controller counts them, and errors that come together are sent once."""

CALM_COST: Final = 100
ERROR_COST: Final = 10
"""A state that takes long to write is sent less often: it takes at most 1 / 100 or 1 / 10 of the time."""

STANDBY_CHECK_S: Final = 3.0
DRAIN_S: Final = 0.3
LOCK_CHECK_S: Final = 2.0
ENDED_LATCHES: Final = 8
LOOP_TURNS: Final = 8
"""Turns of the event loop after which an accepted socket is a connection, and a report is counted."""


class MainProcess:
    """The duties of a sidecar that holds the run lock, from its start to its end.

    ``lifetime_s``: after that time the main hands over to its standby; 0: never. ``on_failure``: receives the
    exceptions that cost the standby information.
    """

    def __init__(
        self,
        takeover: Takeover,
        controller: Controller,
        policy: Policy,
        *,
        lifetime_s: float,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._takeover = takeover
        self._controller = controller
        self._policy = policy
        self._lifetime_s = lifetime_s
        self._on_failure = on_failure
        self._ended_latches = deque(takeover.ended_latches, maxlen=ENDED_LATCHES)
        self._server: HandoverServer | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._sent_at = 0.0
        self._cost_s = self._last_cost_s = 0.0

    @property
    def is_ready(self) -> bool:
        """Whether a standby could take over now."""
        return self._server is not None and self._server.is_ready

    # -- sending the state --------------------------------------------------------------------------------------

    def offer(self, reports: Sequence[Report]) -> bool:
        """Put reports into the controller's inbox and plan to send the state that results; False if it is full."""
        is_taken = self._controller.inbox.offer(reports)
        if is_taken:
            self._plan_to_send(has_errors=any(map(_has_errors, reports)))
        return is_taken

    def notice(self, record: Record) -> None:
        """Send a change of the visible state at once, before a listener shows it; plan to send any other change."""
        if record.before.latch is not None and record.after.latch is None:
            self._ended_latches.append(state_transfer.latch_id(record.before.latch))
        if _visible(record.before) != _visible(record.after):
            self._send()
        else:
            self._plan_to_send()

    def _plan_to_send(self, *, has_errors: bool = False) -> None:
        if self._server is None or not self._server.is_connected:
            return
        calm_s = max(CALM_INTERVAL_S, CALM_COST * self._cost_s)
        loop = asyncio.get_running_loop()
        due = max(loop.time() + ERROR_DELAY_S, self._sent_at + (ERROR_COST * self._cost_s if has_errors else calm_s))
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        # One turn later the controller has counted every report that arrived before ``due``, however busy the loop is.
        self._timer = loop.call_at(due, loop.call_soon, self._send)

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._server is None or not self._server.is_connected:
            return
        began = time.thread_time()
        self._server.send_state()
        # The smaller of the last two costs: the first is high, and must not delay the next errors.
        cost_s = time.thread_time() - began
        self._cost_s, self._last_cost_s = min(cost_s, self._last_cost_s), cost_s
        self._sent_at = asyncio.get_running_loop().time()
        if not self._controller.inbox.is_empty:  # reports that are not counted yet
            self._plan_to_send(has_errors=True)

    def _state(self) -> dict[str, Any] | None:
        try:
            return state_transfer.dump(self._controller, time.monotonic(), self._policy, self._ended_latches)
        except Exception as error:  # noqa: BLE001 - the main goes on answering, the standby knows less
            self._on_failure(error)
            return None

    # -- beginning and end --------------------------------------------------------------------------------------

    async def begin(self, listeners: Listeners, journal: Journal) -> None:
        """Serve the connections of the previous main, wait for a standby, and watch the files of the lock."""
        for name, connection in self._takeover.connections:
            await listeners.adopt(name, connection)
        container = self._controller.container
        if self._takeover.is_successor:
            fields = {"connections": len(self._takeover.connections), "state": container.state}
            logger.info("took over", extra={"fields": fields})
        try:
            self._open_server(listeners)
        except OSError as error:
            self._on_failure(error)
        if self._takeover.is_successor and (container.latch or container.asked or self._ended_latches):
            await journal.save(self._controller.memory())  # the previous main may have died before it saved this
        await self._keep_files(listeners)

    async def _keep_files(self, listeners: Listeners) -> None:
        """Restore the lock file and the socket if they are removed: the next sidecar would become a second main."""
        while not listeners.are_left:
            await asyncio.sleep(LOCK_CHECK_S)
            try:
                if not await in_thread(self._takeover.is_in_place) and not listeners.are_left:
                    self._takeover.retake()
                    if self._server is not None:
                        self._server.close(keep_path=True)
                    self._open_server(listeners)
                    logger.warning("run lock taken anew: its files had been removed")
            except (OSError, LockError) as error:
                self._on_failure(error)

    def _open_server(self, listeners: Listeners) -> None:
        server = HandoverServer(
            self._takeover.directory,
            sockets=listeners.descriptors,
            addresses=self._takeover.addresses,
            app=self._takeover.app,
            state=self._state,
            on_failure=self._on_failure,
        )
        server.open()
        self._server = server

    async def ends(self, stop: asyncio.Event) -> bool:
        """Wait until ``stop`` is set, or until the lifetime is over and a standby is ready; return whether it is."""
        wait_s = self._lifetime_s or None
        while not stop.is_set():
            try:
                async with asyncio.timeout(wait_s):
                    await stop.wait()
            except TimeoutError:
                if self.is_ready:
                    return True
                wait_s = STANDBY_CHECK_S
        return self.is_ready

    async def hand_over(self, listeners: Listeners, journal: Journal) -> None:
        """Answer the requests in flight, hand sockets and state to the standby, and release the lock."""
        listeners.accept_no_more()
        connections = await _idle_connections(listeners)
        for listener in listeners.http:
            await listener.close(keep_paths=True)
        await _turn_loop()
        await journal.settled(DRAIN_S)
        assert self._server is not None  # noqa: S101 - without a server no standby is ready
        await self._server.hand_over(connections)
        self._server.close(keep_path=True)
        self._takeover.lock.release()
        for _, connection in connections:
            connection.close()
        logger.info("handed over", extra={"fields": {"connections": len(connections)}})

    def close(self) -> None:
        """Stop, with or without a takeover."""
        if self._timer is not None:
            self._timer.cancel()
        if self._server is not None and self._takeover.lock.is_held:
            self._server.close()


async def _idle_connections(listeners: Listeners) -> list[tuple[str, socket.socket]]:
    """Wait at most ``DRAIN_S`` for the requests in flight, and detach every connection that has none."""
    await _turn_loop()
    connections = listeners.let_go()
    ends_at = time.monotonic() + DRAIN_S
    while listeners.is_busy and time.monotonic() < ends_at:
        await asyncio.sleep(0.001)
        connections += listeners.let_go()
    return connections


async def _turn_loop() -> None:
    for _ in range(LOOP_TURNS):
        await asyncio.sleep(0)


def _has_errors(report: Report) -> bool:
    return isinstance(report, (ErrorReport, Sample)) and bool(report.errors)


def _visible(container: Container) -> tuple[object, ...]:
    return container.state, container.latch, container.life, container.app_start
