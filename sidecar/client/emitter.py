"""Adds reports up, and sends the sums from a thread of its own every tenth of a second; the first one at once.

Any number of threads, signal handlers and forked children may call it. No caller waits for another one or for the
sidecar: a report goes into a queue, and whoever finds the lock free adds the queue up.
"""

from __future__ import annotations

import _thread
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from .local_http import LocalHttp, Outcome
from .reports import MOST, ReportSeries

KEEP_S: Final = 30.0
"""Maximum age of a sum. An older one would count as new errors of an app that may have recovered."""

PACE_S: Final = 0.1
"""Interval of sends, and so the maximum delay of a report."""

IDLE_S: Final = 5.0
"""Time without reports after which the thread ends. The next report starts another one."""

EXIT_S: Final = 0.2
OBJECTS: Final = 40
"""Maximum number of objects in one request; its body stays below the 64 KiB that the listener takes."""

KEPT_SERIES: Final = 256
FOLDED_SERIES: Final = 64
QUEUE_LIMIT: Final = 10_000
LOGGER: Final = "health_arbiter_client"


class Stats(NamedTuple):
    """The outcome of all reports: the number of errors, requests and heartbeats together."""

    sent: int
    kept: int
    dropped: int


class Increment(NamedTuple):
    """One call."""

    series: ReportSeries
    number: int
    message: str | None = None


class ReportRequest(NamedTuple):
    """Sums on their way."""

    path: str
    body: bytes
    counts: dict[ReportSeries, int]


class Sum:
    """The count of one series that waits, since when, and the last message."""

    __slots__ = ("count", "message", "since")

    def __init__(self, since: float) -> None:
        self.count = 0
        self.since = since
        self.message: str | None = None


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
        self._kept: dict[ReportSeries, Sum] = {}
        self._gauges: dict[str, float] = {}
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
        self._ensure_thread()

    def take_gauge(self, field: str, value: float) -> None:
        """Send a present value soon. It is not kept for a sidecar that is away: by then it may be false."""
        self._gauges[field] = value
        self._ensure_thread()

    def drop(self, count: int) -> None:
        """Count reports that cannot be sent."""
        self._taken += count
        self._dropped += count

    def stats(self) -> Stats:
        """Return the outcome of all reports since the start of this process."""
        waiting = sum(report.number for report in self._queue.copy())
        return Stats(self._sent, self._taken - self._sent - self._dropped + waiting, self._dropped)

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
            requests = [*self._requests()]
        outcomes = [Outcome.SENT]
        for path, body, counts in requests:
            now = self._clock()
            outcomes.append(http.post(path, body, now))
            with self._lock:
                self._settle(outcomes[-1], counts, now)
            if outcomes[-1] not in (Outcome.SENT, Outcome.REFUSED):
                break
        worst = next((outcome for outcome in outcomes if outcome is not Outcome.SENT), Outcome.SENT)
        self._warn(worst, http)
        return worst

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

    def _sum_of(self, series: ReportSeries, now: float) -> Sum | None:
        total = self._kept.get(series)
        if total is None and len(self._kept) >= KEPT_SERIES and series.folded is not None:
            series = series.folded
            total = self._kept.get(series)
        if total is None and len(self._kept) < KEPT_SERIES + FOLDED_SERIES:
            total = self._kept[series] = Sum(now)
        return total

    def _requests(self) -> Iterator[ReportRequest]:
        """Yield all sums and gauges as requests: errors are an array, results one object, a heartbeat has no body."""
        from json import dumps  # noqa: PLC0415 - for a quick import of the app

        errors, results, heartbeats = [
            {series: min(total.count, MOST) for series, total in self._kept.items() if series.path == path}
            for path in ("/errors", "/results", "/heartbeat")
        ]
        for at in range(0, len(errors), OBJECTS):
            part = dict([*errors.items()][at : at + OBJECTS])
            objects = [_error(series, count, self._kept[series].message) for series, count in part.items()]
            yield ReportRequest("/errors", dumps(objects, ensure_ascii=False).encode(errors="replace"), part)
        gauges = {field: self._gauges.pop(field) for field in [*self._gauges]}
        if fields := {series.field: count for series, count in results.items()} | gauges:
            yield ReportRequest("/results", dumps(fields).encode(), results)
        if heartbeats:
            yield ReportRequest("/heartbeat", b"", heartbeats)

    def _settle(self, outcome: Outcome, counts: dict[ReportSeries, int], now: float) -> None:
        """Note the outcome of a request: its counts need not be sent again, or all old ones are dropped."""
        if outcome in (Outcome.SENT, Outcome.REFUSED):
            for series, count in counts.items():
                self._kept[series].count -= count
                if not self._kept[series].count:
                    del self._kept[series]
            self._sent += sum(counts.values()) * (outcome is Outcome.SENT)
            self._dropped += sum(counts.values()) * (outcome is Outcome.REFUSED)
            return
        keep_s = 0.0 if outcome is Outcome.NOWHERE else KEEP_S
        for series in [series for series, total in self._kept.items() if now - total.since >= keep_s]:
            self._dropped += self._kept.pop(series).count

    # -- the thread ---------------------------------------------------------------------------------------------

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
            idle_s = 0.0 if self._has_work() else idle_s + PACE_S
        self._has_thread = False
        if self._has_work():  # reported before the line above, when no other thread seemed necessary
            self._ensure_thread()

    def _has_work(self) -> bool:
        return bool(self._queue or self._kept or self._gauges)

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


def _error(series: ReportSeries, count: int, message: str | None) -> dict[str, object]:
    fields: dict[str, object] = {series.field: count, **dict(series.tags)}
    return fields if message is None else {**fields, "message": message}
