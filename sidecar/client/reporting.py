"""The functions that an app calls, ``report`` and the like, and the emitter of the process, which sends their sums.

A report goes into a queue, for which no caller waits: neither for another one nor for the sidecar. A thread adds the
queue up and sends the sums, the first report at once and then every tenth of a second. Any number of threads, signal
handlers and forked children may report.
"""

from __future__ import annotations

import _thread
import atexit
import os
import threading  # noqa: F401 - first imported by another thread it takes that for the main one: the exit waits for it
import time
from collections import deque
from collections.abc import Callable
from math import inf
from operator import index
from typing import Final, NamedTuple

from .local_http import LocalHttp, Outcome
from .sums import FAILED, HEARTBEAT, KEEP_S, MOST, OK, ReportSeries, Sums, errors

PACE_S: Final = 0.1
"""Interval of sends, and so the maximum delay of a report."""

IDLE_S: Final = 5.0
"""Time without reports after which the thread ends. The next report starts another one."""

TIMEOUT_S: Final = 1.0
"""Maximum time to wait for the sidecar, in the thread."""

EXIT_S: Final = 0.2
"""The same at the end of the process."""

QUEUE_LIMIT: Final = 10_000
"""Maximum number of reports between two sends; further ones are dropped."""

KEPT_OF_MESSAGE: Final = 512
"""Characters. Secrets are removed when a message is sent, once for all reports that are added up."""

WAITING: Final = f": reports wait for at most {KEEP_S:g} s, then they are dropped"
LOGGER: Final = "health_arbiter_client"
APP_START: Final = "ARBITER_APP_START"


class Stats(NamedTuple):
    """The outcome of all reports: the number of errors, requests and heartbeats together."""

    sent: int
    kept: int
    dropped: int


class Emitter:
    """Takes reports and sends them. ``clock`` gives monotonic seconds; ``find`` is called once, at the first send.

    Each fault is logged the first time.
    """

    def __init__(self, find: Callable[[], LocalHttp], clock: Callable[[], float] = time.monotonic) -> None:
        self._find = find
        self._http: LocalHttp | None = None
        self._clock = clock
        self._logged = {""}
        self.start_afresh()

    def start_afresh(self) -> None:
        """Forget everything: after a fork the sums belong to the parent, and its threads do not exist."""
        self._sending = _thread.allocate_lock()  # held by the owner of the sums
        self._queue: deque[tuple[ReportSeries, int, str | None]] = deque()
        self._sums = Sums()
        self._has_thread = False

    def take(self, series: ReportSeries, number: int, message: str | None = None) -> None:
        """Count a report, to be sent soon; never blocks."""
        if len(self._queue) >= QUEUE_LIMIT:
            self.drop(number)
            return
        self._queue.append((series, number, message))
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
        sums, waiting = self._sums, sum(number for _, number, _ in self._queue.copy())
        return Stats(sums.sent, sums.taken - sums.sent - sums.dropped + waiting, sums.dropped)

    def use(self, find: Callable[[], LocalHttp]) -> None:
        """Send elsewhere. May wait for a thread that is sending."""
        with self._sending:
            self._find, self._http, self._logged = find, None, {""}

    def close(self) -> None:
        """Send the sums for at most ``EXIT_S`` seconds. For the end of the process."""
        give_up_at = self._clock() + EXIT_S
        if not self._sending.acquire(timeout=EXIT_S):
            return
        try:
            while self._send(EXIT_S) is Outcome.FULL and self._clock() < give_up_at:
                time.sleep(EXIT_S / 50)
        finally:
            self._sending.release()

    def _send(self, timeout_s: float) -> Outcome:
        """Add the queue up, send all sums, and return the last outcome."""
        http = self._http = self._http or self._find()
        now, outcome = self._clock(), Outcome.SENT
        for _ in range(len(self._queue)):
            self._sums.add(*self._queue.popleft(), now)
        for path, body, series in [*self._sums.requests()]:
            now = self._clock()
            outcome = http.post(path, body, now, timeout_s)
            self._sums.settle(outcome, series, now)
            if outcome in (Outcome.FULL, Outcome.AWAY):
                break
        if http.fault not in self._logged:
            self._logged.add(http.fault)
            _warn(http.fault + WAITING * (outcome is Outcome.AWAY))
        return outcome

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
                self._send(TIMEOUT_S)
            time.sleep(PACE_S)
            idle_s = 0.0 if self._queue or self._sums else idle_s + PACE_S
        self._has_thread = False
        if self._queue or self._sums:  # reported before the line above, when no other thread seemed necessary
            self._ensure_thread()


EMITTER: Final = Emitter(LocalHttp.of)
os.register_at_fork(after_in_child=EMITTER.start_afresh)
atexit.register(EMITTER.close)


def report(
    count: int = 1,
    *,
    level: str = "server_error",
    kind: str | None = None,
    message: str | None = None,
    fingerprint: str | None = None,
    fatal: bool = False,
    app_start: str | None = None,
) -> None:
    """Report ``count`` errors. Never blocks, never raises; ``stats`` counts what cannot be sent.

    ``level``, ``kind``, ``fingerprint``, ``fatal`` and ``app_start`` are those of ``POST /errors``. The first 200
    characters of ``message`` are sent, without secrets, and only the last message of reports that are added up.
    ``app_start`` is by default ``ARBITER_APP_START`` of the environment.
    """
    try:
        series = errors(level, kind, fingerprint, app_start or os.environ.get(APP_START), fatal=bool(fatal))
        EMITTER.take(series, _checked(count), None if message is None else str(message)[:KEPT_OF_MESSAGE])
    except Exception:  # noqa: BLE001 - an app that reports an error must not get another one
        EMITTER.drop(1)


def results(ok: int = 0, failed: int = 0, in_flight: int | None = None, load: float | None = None) -> None:
    """Report requests that succeeded and requests that failed; they are added up for a tenth of a second.

    ``in_flight``: the number of requests in progress now, in the whole app and not only in this process, because a
    drain ends early when it is 0. ``load``: how busy the app is now, in any unit, for ``ARBITER_BUSY_LOAD``; for a
    minute it counts in place of ``in_flight``. Both are dropped if they cannot be sent now.
    """
    try:
        gauges: dict[str, float] = {}
        if in_flight is not None:
            gauges["in_flight"] = min(_checked(in_flight), MOST)
        if load is not None:
            gauges["load"] = _checked_load(load)
        counts = {OK: _checked(ok), FAILED: _checked(failed)}
        for series, count in counts.items():
            if count:
                EMITTER.take(series, count)
        for field, value in gauges.items():
            EMITTER.take_gauge(field, value)
    except Exception:  # noqa: BLE001 - as in report
        EMITTER.drop(1)


def announce_start() -> None:
    """Report the start of the app, if the environment names it: without an error nothing else would."""
    if os.environ.get(APP_START):
        report(0)


def heartbeat() -> None:
    """Report that the app is alive."""
    try:
        EMITTER.take(HEARTBEAT, 1)
    except Exception:  # noqa: BLE001 - as in report
        EMITTER.drop(1)


def stats() -> Stats:
    """Return the outcome of all reports of this process."""
    return EMITTER.stats()


def configure(*, socket: str = "", listen: str = "") -> None:
    """Send to this unix socket, else to this ``address:port``, whatever the variables say; without either nowhere."""
    EMITTER.use(lambda: LocalHttp(socket, listen))


def _warn(fault: str) -> None:
    """Log a fault. A handler of logs may report, too: nothing here waits for this thread."""
    try:
        import logging  # noqa: PLC0415 - it takes longer than all other imports, and is rarely needed

        logging.getLogger(LOGGER).warning("%s", fault)
    except Exception:  # noqa: BLE001, S110 - a handler of the app that fails must not end this thread
        pass


def _checked(count: int) -> int:
    if count < 0:
        raise ValueError("count: takes a whole number, 0 or more")
    return index(count)


def _checked_load(load: float) -> float:
    if not 0 <= load < inf:
        raise ValueError("load: takes a number of 0 or more")
    return float(load)
