"""Ledgers of a week of one service."""

from __future__ import annotations

from typing import Final

from sidecar.controller.ledger_entries import NO_CULL
from sidecar.core.types import Entry

DAY_S: Final = 86_400.0
UNTIL_S: Final = 1_767_873_600.0
"""2026-01-08 12:00 UTC."""

SINCE_S: Final = UNTIL_S - 7 * DAY_S


def busy_week() -> list[Entry]:
    """Nine culls, of which one did not help, one is unclear and one was ordered, and every other kind of entry."""
    entries = [entry for number in range(8) for entry in _cull(number, SINCE_S + number * 0.8 * DAY_S)]
    day_ago = UNTIL_S - DAY_S
    return [
        *entries,
        Entry("culled", UNTIL_S - 100, "web-9", "", "ordered", "ann"),
        Entry("unclear", UNTIL_S - 50, "web-9", "unknown", "not_replaced", seconds=50.0),
        Entry("suspect", day_ago, "web-1", "http", "errors"),
        Entry("denied", day_ago + 1, "web-1", "http", "paused", seconds=600.0),
        Entry("denied", day_ago + 2, "web-2", "http", "window", seconds=60.0),
        Entry("denied", day_ago + 3, "web-3", "http", "paused", seconds=600.0),
        Entry("recovered", day_ago + 30, "web-1", "http", seconds=30.0),
        Entry("paused", day_ago, "", "http", seconds=600.0),
        Entry("paused", day_ago + 700, "", "http", seconds=1200.0),
        Entry("duplicate", day_ago, "web-7"),
        Entry("retired", UNTIL_S - 2 * DAY_S, "web-5"),
        Entry("replaced", UNTIL_S - 2 * DAY_S + 12, "web-5", seconds=12.0),
        Entry("hold", UNTIL_S - 3 * DAY_S, "", "", "migration of the <b>database</b>", "ann", 3600.0),
        Entry("release", UNTIL_S - 3 * DAY_S + 1800),
        Entry("hold", day_ago, "web-2", "", "looking at it", "bob", 600.0),
        Entry("not_honoured", UNTIL_S - 4 * DAY_S, "web-3", seconds=300.0),
        Entry("data_loss", UNTIL_S - 5 * DAY_S),
        Entry("redis_away", UNTIL_S - 5 * DAY_S, "web-1", reason="timeout"),
        Entry("redis_back", UNTIL_S - 5 * DAY_S + 125, "web-1", seconds=125.0),
        Entry("revived", day_ago + 500, "web-2", "", "false alarm", "ann", 40.0),
        Entry("restarted", day_ago + 600, "web-4", "http", seconds=31.0, detail="the app was restarted in place"),
        Entry("restarted", day_ago + 700, "web-6", reason=NO_CULL, detail="in place (3 restarts in the last 9m 20s)"),
        Entry("action_failed", day_ago + 590, "web-4", reason="nomad-restart", seconds=0.2),
    ]


def _cull(number: int, at: float) -> list[Entry]:
    who = f"web-{number}"
    return [
        Entry("suspect", at, who, "redis", "errors"),
        Entry("granted", at + 3, who, "redis", "granted"),
        Entry(
            "culled", at + 4, who, "redis", "errors", seconds=4.0, detail=f"5 errors\n5 x redis (f00, {number}): gone"
        ),
        Entry("replaced", at + 30, who, "redis", seconds=20.0 + number),
        Entry("helped" if number else "unhelped", at + 90, who, "redis", seconds=86.0),
    ]


def shadow_week() -> list[Entry]:
    """Three would-be culls in shadow mode, of which two recovered by themselves."""
    return [
        *(Entry("would_cull", SINCE_S + number, f"web-{number}", "redis", "errors") for number in range(3)),
        *(Entry("would_recover", SINCE_S + 60, f"web-{number}", "redis", seconds=60.0) for number in (0, 2)),
    ]
