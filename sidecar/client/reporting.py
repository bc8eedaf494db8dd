"""What the app calls: ``report`` and its kin, all on one emitter of the process."""

from __future__ import annotations

import atexit
import os
from functools import lru_cache
from math import inf
from operator import index
from typing import Final

from sidecar.client import lines
from sidecar.client.emitter import MOST, Emitter, Report, Stats
from sidecar.client.outlet import Outlet, places, places_of

EMITTER: Final = Emitter(Outlet(places_of))
os.register_at_fork(after_in_child=EMITTER.after_fork)
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
    """Tell the sidecar of ``count`` errors. Never blocks, never raises: what cannot be sent is counted in ``stats``.

    ``level``, ``kind``, ``fingerprint``, ``fatal`` and ``app_start`` mean what they mean in ``POST /errors``. Of
    ``message`` the first 200 characters go along, on one line, and only the last one of those that are added up;
    nothing is redacted here. ``app_start`` is ``ARBITER_APP_START`` of the environment unless given, else not sent.
    """
    try:
        series = lines.errors(level, kind, fingerprint, app_start or _app_start(), fatal=bool(fatal))
        EMITTER.take(Report(series, _checked(count), None if message is None else lines.message_tag(message)))
    except Exception:  # noqa: BLE001 - an app that reports an error must not get another one
        EMITTER.drop(1)


def results(ok: int = 0, failed: int = 0, in_flight: int | None = None, load: float | None = None) -> None:
    """Tell the sidecar of requests that went well and requests that failed; added up over a tenth of a second.

    ``in_flight``: how many are under way now, in the whole app and not in this process alone, for a drain ends early
    once there are none. ``load``: how busy that is now, in any unit, for ``ARBITER_BUSY_LOAD``; it counts for a
    minute, instead of ``in_flight``. Neither is sent later when it cannot be sent now.
    """
    try:
        gauges = []
        if in_flight is not None:
            gauges.append((lines.IN_FLIGHT, str(min(_checked(in_flight), MOST))))
        if load is not None:
            gauges.append((lines.LOAD, lines.decimal(_checked_load(load))))
        for series, count in ((lines.OK, _checked(ok)), (lines.FAILED, _checked(failed))):
            if count:
                EMITTER.take(Report(series, count, urgent=False))
        for series, number in gauges:
            EMITTER.take(Report(series, 1, number, urgent=False))
    except Exception:  # noqa: BLE001 - as in report
        EMITTER.drop(1)


def heartbeat() -> None:
    """Tell the sidecar that the app is alive."""
    try:
        EMITTER.take(Report(lines.HEARTBEAT, 1))
    except Exception:  # noqa: BLE001 - as in report
        EMITTER.drop(1)


def stats() -> Stats:
    """What became of all that this process has reported."""
    return EMITTER.stats()


def configure(*, socket: str = "", listen: str = "") -> None:
    """Send to this unix datagram socket, or to this ``address:port`` of UDP, whatever the environment says."""
    EMITTER.use(Outlet(lambda: places(socket, listen)))


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
