"""The trial: culls for one cause are limited until it is known whether they help.

At first one cull for a cause may be without an outcome. Each cull that helped doubles that number, up to the budget. A
cull that did not help makes it one again, and pauses culls for that cause for a window; each further one in a row
doubles the pause, up to a day. What culls earned holds for their episode only (``episode``).

A cull that says nothing (the container was not replaced, or its replacement left) pauses an unproven cause for a window
after the cull. Otherwise, where replacements cannot start, one cull would follow another.

At most two unproven causes are tried at the same time, and a cause that failed counts for a window. Otherwise an outage
with many causes would have a cull for each.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sidecar.core.fleet.draft import Draft
from sidecar.core.fleet.episode import FIRST
from sidecar.core.fleet.records import Cull, Trial
from sidecar.core.types import MANUAL, US_PER_S

DAY_US: Final = 24 * 3600 * US_PER_S

MOST_CAUSES: Final = 20
"""Maximum number of causes: the apps choose their words, and each has a record."""

OTHER: Final = "other"


def name(draft: Draft, cause: str) -> str:
    """The cause under which a cull counts: ``OTHER`` for all beyond the first ``MOST_CAUSES``."""
    is_own = cause == MANUAL or cause in draft.trials or len(draft.trials) < MOST_CAUSES
    return cause if is_own else OTHER


def culled(draft: Draft, cause: str) -> None:
    """Record a cull for this cause."""
    if cause != MANUAL:
        trial = draft.trial(cause)
        draft.trials[cause] = replace(trial, last_us=draft.now_us, began_us=trial.began_us or draft.now_us)


def helped(draft: Draft, cull: Cull) -> None:
    """Record that a cull helped. One of an earlier episode says nothing about this one."""
    trial = draft.trial(cull.cause)
    if not 0 < trial.began_us <= cull.at_us:
        _learn(draft, cull.cause, replace(trial, last_us=draft.now_us))
        return
    limit = min(2 * trial.limit, max(FIRST, draft.limits.capacity))
    fresh = {"failures": 0, "paused_us": 0, "pause_us": 0, "last_us": draft.now_us}
    _learn(draft, cull.cause, replace(trial, limit=limit, **fresh))


def failed(draft: Draft, cull: Cull) -> None:
    """Record that a cull did not help, or no more than waiting.

    A cull from before the pause does not make it longer.
    """
    trial = draft.trial(cull.cause)
    if trial.failures and cull.at_us < trial.paused_us:
        _learn(draft, cull.cause, replace(trial, last_us=draft.now_us))
        return
    failures = trial.failures + 1
    pause_us = min(draft.limits.window_us << min(failures - 1, 20), max(DAY_US, draft.limits.window_us))
    paused = {"failures": failures, "paused_us": draft.now_us, "pause_us": pause_us, "last_us": draft.now_us}
    _learn(draft, cull.cause, replace(trial, limit=FIRST, **paused))


def unclear(draft: Draft, cull: Cull) -> None:
    """Record an unclear outcome: an unproven cause waits until a window has passed since the cull."""
    trial = draft.trial(cull.cause)
    if trial.limit == FIRST:
        wait_us = max(0, cull.at_us + draft.limits.window_us - draft.now_us, trial.pause_left_us(draft.now_us))
        trial = replace(trial, paused_us=draft.now_us, pause_us=wait_us)
    _learn(draft, cull.cause, replace(trial, last_us=draft.now_us))


def release(draft: Draft) -> None:
    """End all pauses: culls may be tried again for every cause, one at first."""
    forgiven = {"failures": 0, "paused_us": 0, "pause_us": 0, "last_us": draft.now_us}
    draft.trials = {cause: replace(trial, **forgiven) for cause, trial in draft.trials.items()}


def _learn(draft: Draft, cause: str, trial: Trial) -> None:
    if cause != MANUAL:
        draft.trials[cause] = trial
