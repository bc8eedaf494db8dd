"""Sends counts at once, or adds them up until the sidecar accepts them.

Any number of threads, signal handlers and forked children may call it. No caller waits for another: a report goes into
a queue, and the thread that gets the lock sends for all.
"""

from __future__ import annotations

import _thread
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from .lines import StatsdSeries, Sum
from .local_http import LocalHttp
from .outlet import Outcome, Outlet

KEEP_S: Final = 30.0
"""Maximum age of a sum. An older one would count as new errors of an app that may have recovered."""

PACE_S: Final = 0.1
"""Interval of attempts, and the maximum delay of reports that are not urgent."""

IDLE_S: Final = 5.0
EXIT_S: Final = 0.2
KEPT_SERIES: Final = 256
FOLDED_SERIES: Final = 64
QUEUE_LIMIT: Final = 10_000
MOST: Final = 1_000_000
"""Maximum count in one line; the next packet has the rest."""

PACKET_LIMIT: Final = 1_400
"""Bytes; fits any network and any reader's buffer."""

LOGGER: Final = "health_arbiter_client"
_ROUNDS: Final = 100


class Stats(NamedTuple):
    """The outcome of all reports: the number of errors, requests, heartbeats and gauges together."""

    sent: int
    kept: int
    dropped: int


class Increment(NamedTuple):
    """One call. If it is not urgent it may wait ``PACE_S``, to be added up with others of its series."""

    series: StatsdSeries
    number: int
    message: str | None = None
    urgent: bool = True


class Emitter:
    """Takes reports and sends them, now or later. ``clock`` gives monotonic seconds.

    ``otherwise``: what to send by if ``outlet`` has no address; it may wait, so only the emitter's thread sends by it.
    The first time that no sidecar is found, and the first time that the answer is not a sidecar's, one line is logged.
    """

    def __init__(
        self,
        outlet: Outlet,
        clock: Callable[[], float] = time.monotonic,
        *,
        otherwise: Callable[[], LocalHttp] | None = None,
    ) -> None:
        self._outlet: Outlet | LocalHttp = outlet
        self._otherwise = otherwise
        self._clock = clock
        self._fault: Outcome | None = None
        self._logged: set[Outcome] = set()
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._lock = _thread.allocate_lock()
        self._posting = _thread.allocate_lock()
        self._queue: deque[Increment] = deque()
        self._kept: dict[StatsdSeries, Sum] = {}
        self._next_s = float("-inf")
        self._flushing = False
        self._taken = self._sent = self._dropped = 0

    def take(self, report: Increment) -> None:
        """Count a report. Sends it or adds it to the sums that wait; never blocks."""
        if len(self._queue) >= QUEUE_LIMIT:
            self.drop(report.number)
            return
        self._queue.append(report)
        for _ in range(_ROUNDS):
            # A thread that finds the lock taken does not wait: the holder checks the queue again after the release.
            if not self._queue or not self._lock.acquire(blocking=False):
                return
            try:
                self._work()
            finally:
                self._lock.release()

    def drop(self, count: int) -> None:
        """Count reports that cannot be sent."""
        self._taken += count
        self._dropped += count

    def stats(self) -> Stats:
        """Return the outcome of all reports since the start of this process."""
        waiting = sum(report.number for report in self._queue.copy())
        return Stats(self._sent, self._taken - self._sent - self._dropped + waiting, self._dropped)

    def use(self, outlet: Outlet) -> None:
        """Replace the outlet. May wait for a thread that is sending."""
        with self._lock:
            self._outlet.close()
            self._outlet = outlet
            self._otherwise = self._fault = None
            self._logged.clear()

    def close(self) -> None:
        """Send the sums for at most ``EXIT_S`` seconds, and close the socket. For the end of the process."""
        give_up_at = self._clock() + EXIT_S
        if isinstance(self._outlet, LocalHttp):
            self._outlet.timeout_s = EXIT_S
        while self.flush() is Outcome.FULL and self._clock() < give_up_at:
            time.sleep(EXIT_S / 50)
        self._warn()
        if self._lock.acquire(timeout=EXIT_S):
            self._outlet.close()
            self._lock.release()

    def after_fork(self) -> None:
        """Start afresh in the child: the sums and the socket belong to the parent."""
        self._start_afresh()
        self._outlet.close()

    def flush(self) -> Outcome:
        """Send all sums, urgent or not. Returns FULL also if another thread is sending."""
        if isinstance(self._outlet, LocalHttp):
            return self._post_kept(self._outlet)
        if not self._lock.acquire(blocking=False):
            return Outcome.FULL
        try:
            self._collect(self._clock())
            return self._send_kept(self._clock())
        finally:
            self._lock.release()

    def _post_kept(self, http: LocalHttp) -> Outcome:
        """Send all sums, and let others add to them meanwhile: an exchange takes long."""
        if not self._posting.acquire(blocking=False):
            return Outcome.FULL
        try:
            with self._lock:
                self._collect(self._clock())
                packets = [*http.packets(self._kept)]
            for packet, counts in packets:
                now = self._clock()
                outcome = http.send(packet, now)
                with self._lock:
                    if not self._is_done(outcome, counts, now):
                        return outcome
            return Outcome.SENT
        finally:
            self._posting.release()

    # -- with the lock ------------------------------------------------------------------------------------------

    def _work(self) -> None:
        now = self._clock()
        is_due = self._collect(now) or now >= self._next_s
        if is_due and isinstance(self._outlet, Outlet):
            self._send_kept(now)
        if self._kept and not self._flushing:
            self._start_flushing()

    def _collect(self, now: float) -> bool:
        """Add up the queue; return whether any of it is urgent."""
        urgent = False
        while self._queue:
            report = self._queue.popleft()
            self._taken += report.number
            urgent = urgent or report.urgent
            total = self._sum_of(report.series, now)
            if total is None:
                self._dropped += report.number
            else:
                total.count += report.number
                total.message = report.message or total.message
        return urgent

    def _sum_of(self, series: StatsdSeries, now: float) -> Sum | None:
        total = self._kept.get(series)
        if total is None and len(self._kept) >= KEPT_SERIES and series.folded is not None:
            series = series.folded
            total = self._kept.get(series)
        if total is None and len(self._kept) < KEPT_SERIES + FOLDED_SERIES:
            total = self._kept[series] = Sum(now)
        return total

    def _send_kept(self, now: float) -> Outcome:
        self._next_s = now + PACE_S
        for packet, counts in _packets(self._kept):
            outcome = self._outlet.send(packet, now)
            if outcome is Outcome.NOWHERE and self._posts_instead():
                return Outcome.FULL
            if not self._is_done(outcome, counts, now):
                return outcome
        return Outcome.SENT

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

    def _posts_instead(self) -> bool:
        http, self._otherwise = self._otherwise() if self._otherwise else None, None
        if http is None or not http.places:
            return False
        self._outlet = http
        return True

    def _settle(self, counts: dict[StatsdSeries, int], *, is_sent: bool) -> None:
        for series, count in counts.items():
            total = self._kept.get(series)
            if total is None:
                continue  # another outlet has sent or dropped it while it was posted
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

    # -- later --------------------------------------------------------------------------------------------------

    def _start_flushing(self) -> None:
        try:
            # threading.Thread.start waits until the new thread runs; this does not.
            _thread.start_new_thread(self._keep_flushing, ())
        except RuntimeError:  # no more threads, or the interpreter ends: the next report or close() sends
            return
        self._flushing = True

    def _keep_flushing(self) -> None:
        """Send the sums until there have been none for ``IDLE_S``."""
        idle_s = 0.0
        while idle_s < IDLE_S:
            time.sleep(PACE_S)
            self.flush()
            self._warn()
            idle_s = 0.0 if self._kept else idle_s + PACE_S
        with self._lock:
            self._flushing = False
            if self._kept:
                self._start_flushing()

    def _warn(self) -> None:
        """Log each fault the first time. Never with the lock: a handler of logs may report, too."""
        fault, self._fault = self._fault, None
        if fault is None or fault in self._logged:
            return
        self._logged.add(fault)
        try:
            import logging  # noqa: PLC0415 - it takes longer than all other imports, and is rarely needed

            text = f"no sidecar answers at {self._outlet}: reports wait for at most {KEEP_S:g} s, then they are dropped"
            if fault is Outcome.REFUSED and isinstance(self._outlet, LocalHttp):
                text = self._outlet.refusal
            logging.getLogger(LOGGER).warning("%s", text)
        except Exception:  # noqa: BLE001, S110 - a handler of the app that fails must not end this thread
            pass


def _packets(kept: dict[StatsdSeries, Sum]) -> Iterator[tuple[bytes, dict[StatsdSeries, int]]]:
    """Yield all sums as packets, each with its counts. Iterates over a copy, because the sums may change meanwhile."""
    lines: list[bytes] = []
    counts: dict[StatsdSeries, int] = {}
    size = 0
    for series, total in list(kept.items()):
        count = min(total.count, MOST)
        line = series.line(count, total.message)
        if lines and size + len(line) >= PACKET_LIMIT:
            yield b"\n".join(lines), counts
            lines, counts, size = [], {}, 0
        lines.append(line)
        counts[series] = count
        size += len(line) + 1
    if lines:
        yield b"\n".join(lines), counts
