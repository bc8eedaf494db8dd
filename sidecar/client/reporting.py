"""The functions that an app calls: ``report`` and the like, on the one emitter of the process."""

from __future__ import annotations

import atexit
import os
from functools import lru_cache
from math import inf
from operator import index
from typing import Final

from .emitter import Emitter, Stats
from .local_http import LocalHttp
from .reports import FAILED, HEARTBEAT, MOST, OK, errors
from .sums import KEPT_OF_MESSAGE, Increment

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
        series = errors(level, kind, fingerprint, app_start or _app_start(), fatal=bool(fatal))
        EMITTER.take(Increment(series, _checked(count), None if message is None else str(message)[:KEPT_OF_MESSAGE]))
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
        increments = Increment(OK, _checked(ok)), Increment(FAILED, _checked(failed))
        for increment in increments:
            if increment.number:
                EMITTER.take(increment)
        for field, value in gauges.items():
            EMITTER.take_gauge(field, value)
    except Exception:  # noqa: BLE001 - as in report
        EMITTER.drop(1)


def heartbeat() -> None:
    """Report that the app is alive."""
    try:
        EMITTER.take(Increment(HEARTBEAT, 1))
    except Exception:  # noqa: BLE001 - as in report
        EMITTER.drop(1)


def stats() -> Stats:
    """Return the outcome of all reports of this process."""
    return EMITTER.stats()


def configure(*, socket: str = "", listen: str = "") -> None:
    """Send to this unix socket, else to this ``address:port``, whatever the variables say; without either nowhere."""
    EMITTER.use(lambda: LocalHttp(socket, listen))


def _checked(count: int) -> int:
    if count < 0:
        raise ValueError("count: takes a whole number, 0 or more")
    return index(count)


def _checked_load(load: float) -> float:
    if not 0 <= load < inf:
        raise ValueError("load: takes a number of 0 or more")
    return float(load)


@lru_cache(maxsize=1)
def _app_start() -> str | None:
    return os.environ.get("ARBITER_APP_START") or None
