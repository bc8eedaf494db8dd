"""Adds reports up, and sends the sums from a thread of its own every tenth of a second; the first one at once.

Any number of threads, signal handlers and forked children may call it. No caller waits for another one or for the
sidecar: a report goes into a queue, and whoever finds the lock free adds the queue up.
"""

from __future__ import annotations

import _thread
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

from .lines import StatsdSeries, Sum
from .local_http import LocalHttp
from .outlet import Outcome

KEEP_S: Final = 30.0
"""Maximum age of a sum. An older one would count as new errors of an app that may have recovered."""

PACE_S: Final = 0.1
"""Interval of sends, and so the maximum delay of a report."""

IDLE_S: Final = 5.0
"""Time without reports after which the thread ends. The next report starts another one."""

EXIT_S: Final = 0.2
KEPT_SERIES: Final = 256
FOLDED_SERIES: Final = 64
QUEUE_LIMIT: Final = 10_000
LOGGER: Final = "health_arbiter_client"


class Stats(NamedTuple):
    """The outcome of all reports: the number of errors, requests, heartbeats and gauges together."""

    sent: int
    kept: int
    dropped: int


class Increment(NamedTuple):
    """One call."""

    series: StatsdSeries
    number: int
    message: str | None = None


class Transport(Protocol):
    """Where the sums go: ``Outlet`` or ``LocalHttp``."""

    def packets(self, kept: Mapping[StatsdSeries, Sum]) -> Iterator[tuple[bytes, dict[StatsdSeries, int]]]:
        """Yield all sums as packets, each with its counts."""

    def send(self, packet: bytes, now: float) -> Outcome:
        """Send one packet. ``now``: seconds on a monotonic clock."""

    def close(self) -> None:
        """Close the connection; the next packet opens another one."""


class Emitter:
    """Takes reports and sends them. ``clock`` gives monotonic seconds; ``find`` is called once, at the first send.

    The first time that no sidecar is found, and the first time that the answer is not a sidecar's, one line is logged.
    """

    def __init__(self, find: Callable[[], Transport], clock: Callable[[], float] = time.monotonic) -> None:
        self._find = find
        self._transport: Transport | None = None
        self._clock = clock
        self._fault: Outcome | None = None
        self._logged: set[Outcome] = set()
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._lock = _thread.allocate_lock()  # for the sums
        self._sending = _thread.allocate_lock()
        self._queue: deque[Increment] = deque()
        self._kept: dict[StatsdSeries, Sum] = {}
        self._has_thread = False
        self._taken = self._sent = self._dropped = 0

    def take(self, report: Increment) -> None:
        """Count a report, to be sent soon; never blocks."""
        if len(self._queue) >= QUEUE_LIMIT:
            self.drop(report.number)
            return
        self._queue.append(report)
        if self._lock.acquire(blocking=False):
            try:
                self._collect()
            finally:
                self._lock.release()
        if not self._has_thread:
            self._start_thread()

    def drop(self, count: int) -> None:
        """Count reports that cannot be sent."""
        self._taken += count
        self._dropped += count

    def stats(self) -> Stats:
        """Return the outcome of all reports since the start of this process."""
        waiting = sum(report.number for report in self._queue.copy())
        return Stats(self._sent, self._taken - self._sent - self._dropped + waiting, self._dropped)

    def use(self, find: Callable[[], Transport]) -> None:
        """Send by another transport. May wait for a thread that is sending."""
        with self._sending, self._lock:
            self._close_transport()
            self._find, self._transport, self._fault = find, None, None
            self._logged.clear()

    def close(self) -> None:
        """Send the sums for at most ``EXIT_S`` seconds, and close the transport. For the end of the process."""
        give_up_at = self._clock() + EXIT_S
        if isinstance(self._transport, LocalHttp):
            self._transport.timeout_s = EXIT_S
        if not self._sending.acquire(timeout=EXIT_S):
            return
        try:
            while self._send() is Outcome.FULL and self._clock() < give_up_at:
                time.sleep(EXIT_S / 50)
            self._warn()
            self._close_transport()
        finally:
            self._sending.release()

    def after_fork(self) -> None:
        """Start afresh in the child: the sums and the socket belong to the parent."""
        self._start_afresh()
        self._close_transport()

    def flush(self) -> Outcome:
        """Send all sums. Returns FULL also if another thread is sending."""
        if not self._sending.acquire(blocking=False):
            return Outcome.FULL
        try:
            return self._send()
        finally:
            self._sending.release()

    def _send(self) -> Outcome:
        """Send all sums, while others add to them."""
        transport = self._transport = self._transport or self._find()
        with self._lock:
            self._collect()
            packets = [*transport.packets(self._kept)]
        for packet, counts in packets:
            now = self._clock()
            outcome = transport.send(packet, now)
            with self._lock:
                if not self._is_done(outcome, counts, now):
                    return outcome
        return Outcome.SENT

    def _close_transport(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # -- with the lock ------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        """Add up the queue."""
        now = self._clock()
        while self._queue:
            report = self._queue.popleft()
            self._taken += report.number
            total = self._sum_of(report.series, now)
            if total is None:
                self._dropped += report.number
            else:
                total.count += report.number
                total.message = report.message or total.message

    def _sum_of(self, series: StatsdSeries, now: float) -> Sum | None:
        total = self._kept.get(series)
        if total is None and len(self._kept) >= KEPT_SERIES and series.folded is not None:
            series = series.folded
            total = self._kept.get(series)
        if total is None and len(self._kept) < KEPT_SERIES + FOLDED_SERIES:
            total = self._kept[series] = Sum(now)
        return total

    def _is_done(self, outcome: Outcome, counts: dict[StatsdSeries, int], now: float) -> bool:
        """Note the outcome of a packet; return whether its counts need not be sent again."""
        if self._fault is not Outcome.REFUSED:
            self._fault = outcome if outcome in (Outcome.AWAY, Outcome.REFUSED) else None
        is_done = outcome in (Outcome.SENT, Outcome.REFUSED)
        if is_done:
            self._settle(counts, is_sent=outcome is Outcome.SENT)
        else:
            self._forget(0.0 if outcome is Outcome.NOWHERE else KEEP_S, now)
        return is_done

    def _settle(self, counts: dict[StatsdSeries, int], *, is_sent: bool) -> None:
        for series, count in counts.items():
            total = self._kept.get(series)
            if total is None:
                continue  # dropped while it was sent
            if is_sent:
                self._sent += count
            else:
                self._dropped += count
            total.count -= count
            if not total.count:
                del self._kept[series]

    def _forget(self, older_than_s: float, now: float) -> None:
        for series, total in list(self._kept.items()):
            if now - total.since >= older_than_s or not series.can_wait:
                self._dropped += total.count
                del self._kept[series]

    # -- the thread ---------------------------------------------------------------------------------------------

    def _start_thread(self) -> None:
        self._has_thread = True
        try:
            # threading.Thread.start waits until the new thread runs; this does not.
            _thread.start_new_thread(self._run, ())
        except RuntimeError:  # no more threads, or the interpreter ends: the next report or close() sends
            self._has_thread = False

    def _run(self) -> None:
        """Send until there has been nothing to send for ``IDLE_S``.

        It waits by ``time.sleep`` and for locks of ``_thread`` only, which gevent replaces: anything else that waits
        would stop all greenlets.
        """
        idle_s = 0.0
        while idle_s < IDLE_S:
            with self._sending:
                self._send()
                self._warn()
            time.sleep(PACE_S)
            idle_s = 0.0 if self._queue or self._kept else idle_s + PACE_S
        self._has_thread = False
        if self._queue or self._kept:  # reported before the line above, when no other thread seemed necessary
            self._start_thread()

    def _warn(self) -> None:
        """Log each fault the first time. A handler of logs may report, too: nothing there waits for this thread."""
        fault, self._fault = self._fault, None
        if fault is None or fault in self._logged:
            return
        self._logged.add(fault)
        try:
            import logging  # noqa: PLC0415 - it takes longer than all other imports, and is rarely needed

            where = f"no sidecar answers at {self._transport}"
            text = f"{where}: reports wait for at most {KEEP_S:g} s, then they are dropped"
            if fault is Outcome.REFUSED and isinstance(self._transport, LocalHttp):
                text = self._transport.refusal
            logging.getLogger(LOGGER).warning("%s", text)
        except Exception:  # noqa: BLE001, S110 - a handler of the app that fails must not end this thread
            pass
