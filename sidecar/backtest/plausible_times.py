"""The times that a recorded past can have: not before the year 2000, and not later than tomorrow.

A time in milliseconds, microseconds or nanoseconds that is read as seconds is far in the future.
"""

from __future__ import annotations

import time
from math import isfinite
from typing import Final

from sidecar.backtest.past import clock

EARLIEST_S: Final = 946_684_800.0
"""The year 2000, in Unix time."""

LATER_S: Final = 86_400.0
"""Clocks and zones may be wrong by a day."""

_UNITS: Final = {"milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}


def latest_s() -> float:
    """The latest Unix time that a past can have."""
    return time.time() + LATER_S


def problem_with(unix_s: float) -> str:
    """Why nothing can have been recorded at this Unix time, as part of a sentence; empty if it can."""
    end_s = latest_s()
    if EARLIEST_S <= unix_s <= end_s:
        return ""
    if not isfinite(unix_s):
        return "a time that is no number"
    if unix_s < EARLIEST_S:
        return f"a time before the year 2000: {clock(unix_s)}"
    unit = next((name for name, part in _UNITS.items() if EARLIEST_S <= unix_s / part <= end_s), "")
    return f"a time after tomorrow: {unix_s:.0f} s" + (f"; it looks like {unit}" if unit else "")
