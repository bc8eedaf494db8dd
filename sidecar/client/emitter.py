"""Takes reports, and sends their sums from a thread of its own every tenth of a second; the first one at once.

Any number of threads, signal handlers and forked children may call it. No caller waits for another one or for the
sidecar: a report goes into a queue, and whoever finds the lock free adds the queue up.
"""

from __future__ import annotations

import _thread
import threading  # noqa: F401 - first imported by another thread it takes that for the main one: the exit waits for it
import time
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from .local_http import LocalHttp, Outcome
from .sums import KEEP_S, Increment, Sums

PACE_S: Final = 0.1
"""Interval of sends, and so the maximum delay of a report."""

IDLE_S: Final = 5.0
"""Time without reports after which the thread ends. The next report starts another one."""

EXIT_S: Final = 0.2
QUEUE_LIMIT: Final = 10_000
LOGGER: Final = "health_arbiter_client"


class Stats(NamedTuple):
    """The outcome of all reports: the number of errors, requests and heartbeats together."""

    sent: int
    kept: int
    dropped: int


class Emitter:
    """Takes reports and sends them. ``clock`` gives monotonic seconds; ``find`` is called once, at the first send.

    The first time that no sidecar is found, and the first time that the answer is not a sidecar's, one line is logged.
    """

    def __init__(self, find: Callable[[], LocalHttp], clock: Callable[[], float] = time.monotonic) -> None:
        self._find = find
        self._http: LocalHttp | None = None
        self._clock = clock
        self._logged: set[Outcome] = set()
        self.start_afresh()

    def start_afresh(self) -> None:
        """Forget everything: after a fork the sums belong to the parent, and its threads do not exist."""
        self._lock = _thread.allocate_lock()  # for the sums
        self._sending = _thread.allocate_lock()
        self._queue: deque[Increment] = deque()
        self._sums = Sums()
        self._has_thread = False

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
        self._ensure_thread()

    def take_gauge(self, field: str, value: float) -> None:
        """Send a present value soon, or never."""
        self._sums.gauges[field] = value
        self._ensure_thread()

    def drop(self, count: int) -> None:
        """Count reports that cannot be sent."""
        self._sums.drop(count)

    def stats(self) -> Stats:
        """Return the outcome of all reports since the start of this process."""
        sums, waiting = self._sums, sum(report.number for report in self._queue.copy())
        return Stats(sums.sent, sums.taken - sums.sent - sums.dropped + waiting, sums.dropped)

    def use(self, find: Callable[[], LocalHttp]) -> None:
        """Send elsewhere. May wait for a thread that is sending."""
        with self._sending:
            self._find, self._http = find, None
            self._logged.clear()

    def close(self) -> None:
        """Send the sums for at most ``EXIT_S`` seconds. For the end of the process."""
        give_up_at = self._clock() + EXIT_S
        if self._http is not None:
            self._http.timeout_s = EXIT_S
        if not self._sending.acquire(timeout=EXIT_S):
            return
        try:
            while self._send() is Outcome.FULL and self._clock() < give_up_at:
                time.sleep(EXIT_S / 50)
        finally:
            self._sending.release()

    def _send(self) -> Outcome:
        """Send all sums, while others add to them, and return the first outcome that is not SENT."""
        http = self._http = self._http or self._find()
        with self._lock:
            self._collect()
            requests = [*self._sums.requests()]
        outcomes = [Outcome.SENT]
        for path, body, counts in requests:
            now = self._clock()
            outcomes.append(http.post(path, body, now))
            with self._lock:
                self._sums.settle(outcomes[-1], counts, now)
            if outcomes[-1] not in (Outcome.SENT, Outcome.REFUSED):
                break
        worst = next((outcome for outcome in outcomes if outcome is not Outcome.SENT), Outcome.SENT)
        self._warn(worst, http)
        return worst

    def _collect(self) -> None:
        """Add up the queue; with the lock."""
        now = self._clock()
        while self._queue:
            self._sums.add(self._queue.popleft(), now)

    def _ensure_thread(self) -> None:
        if self._has_thread:
            return
        self._has_thread = True
        try:
            # threading.Thread.start waits until the new thread runs; this does not.
            _thread.start_new_thread(self._run, ())
        except RuntimeError:  # no more threads, or the interpreter ends: the next report or close() sends
            self._has_thread = False

    def _run(self) -> None:
        """Send until there has been nothing to send for ``IDLE_S``.

        It waits by ``time.sleep``, for sockets and for locks of ``_thread`` only, which gevent replaces: anything else
        that waits would stop all greenlets.
        """
        idle_s = 0.0
        while idle_s < IDLE_S:
            with self._sending:
                self._send()
            time.sleep(PACE_S)
            idle_s = 0.0 if self._queue or self._sums else idle_s + PACE_S
        self._has_thread = False
        if self._queue or self._sums:  # reported before the line above, when no other thread seemed necessary
            self._ensure_thread()

    def _warn(self, outcome: Outcome, http: LocalHttp) -> None:
        """Log each fault the first time. A handler of logs may report, too: nothing there waits for this thread."""
        if outcome not in (Outcome.AWAY, Outcome.REFUSED) or outcome in self._logged:
            return
        self._logged.add(outcome)
        text = http.refusal
        if outcome is Outcome.AWAY:
            text = f"no sidecar answers at {http}: reports wait for at most {KEEP_S:g} s, then they are dropped"
        try:
            import logging  # noqa: PLC0415 - it takes longer than all other imports, and is rarely needed

            logging.getLogger(LOGGER).warning("%s", text)
        except Exception:  # noqa: BLE001, S110 - a handler of the app that fails must not end this thread
            pass
