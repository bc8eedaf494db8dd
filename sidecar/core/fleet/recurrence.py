"""Causes that recur: culls hide a bug from the users, and so from the people who should repair it.

A cause recurs from its third day with culls within seven days (UTC). Its series is over after seven days without a
cull, so a bug that needs a cull every few days is one series and not many. The fleet's state keeps a row for each
cause, which changes with a cull: no sidecar ever reads a week of the ledger. The report folds the ledger in the same
way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from sidecar.core.beats import RecurringCause
from sidecar.core.claims import MANUAL
from sidecar.core.fleet.records import Recurrence
from sidecar.core.types import US_PER_S

DAY_US: Final = 24 * 3600 * US_PER_S
WEEK: Final = 7
DAYS: Final = 3
"""Number of days with culls, of the last seven, from which on a cause recurs."""

MOST_CAUSES: Final = 20
"""Maximum number of causes: the apps choose their words, and each has a row."""

Recurrences = Mapping[str, Recurrence]
"""Rows by cause."""


def culled(rows: Recurrences, cause: str, now_us: int) -> Recurrences:
    """The rows after a cull for this cause. Beyond the bound, the cause that was culled longest ago is forgotten."""
    if cause == MANUAL:
        return rows
    kept = {name: row for name, row in rows.items() if not _is_over(row, now_us)}
    kept[cause] = _counted(kept.get(cause) or Recurrence(since_us=now_us), now_us)
    while len(kept) > MOST_CAUSES:
        del kept[min(kept, key=lambda name: kept[name].last_us)]
    return kept


def replaced(rows: Recurrences, cause: str, out_us: int) -> Recurrences:
    """The rows after a culled container was replaced, which was out of service for ``out_us``."""
    row = rows.get(cause)
    return rows if row is None else {**rows, cause: replace(row, out_us=row.out_us + max(0, out_us))}


def recurring(rows: Recurrences, now_us: int) -> tuple[RecurringCause, ...]:
    """The causes that recur now, the most culled first."""
    causes = (
        RecurringCause(
            cause,
            row.since_us / US_PER_S,
            row.recurs_us / US_PER_S,
            row.last_us / US_PER_S,
            row.culls,
            row.days,
            row.out_us / US_PER_S,
        )
        for cause, row in rows.items()
        if row.recurs_us and not _is_over(row, now_us)
    )
    return tuple(sorted(causes, key=lambda recurring: (-recurring.culls, recurring.cause)))


def _counted(row: Recurrence, now_us: int) -> Recurrence:
    quiet_days = max(0, _days_between(row.last_us, now_us)) if row.culls else WEEK
    week = (row.week << min(quiet_days, WEEK) | 1) % 2**WEEK
    return replace(
        row,
        last_us=now_us,
        culls=row.culls + 1,
        days=row.days + (quiet_days > 0),
        week=week,
        recurs_us=row.recurs_us or (now_us if week.bit_count() >= DAYS else 0),
    )


def _is_over(row: Recurrence, now_us: int) -> bool:
    return _days_between(row.last_us, now_us) >= WEEK


def _days_between(before_us: int, now_us: int) -> int:
    """How many days in UTC the second instant is after the first."""
    return now_us // DAY_US - before_us // DAY_US
