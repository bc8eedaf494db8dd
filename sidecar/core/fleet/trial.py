"""The trial: culls for one cause are limited until it is known whether they help.

At first one cull for a cause may be without an outcome. Each cull that helped doubles that number, up to the budget. A
cull that did not help makes it one again, and pauses culls for that cause for a window; each further one in a row
doubles the pause, up to a day.

A cull that says nothing (the container was not replaced, or its replacement left) pauses an unproven cause for a window
after the cull. Otherwise, where replacements cannot start, one cull would follow another.

At most two unproven causes are tried at the same time, and a cause that failed counts for a window. Otherwise an outage
with many causes would have a cull for each.

What culls earned holds for their episode only. An episode is the time in which a cause has suspects. It is over when
the cause has had none for a probation. When most of the fleet is sick after a minute in which it was not, something has
happened to all containers at once, and every cause begins another episode. Where an outage follows a repair, the culls
of the repair would else allow as many in the outage, though no restart helps there.

Most of the fleet is sick if the median of its errors has reached the limit, or half of its members are suspect. Both
are in the view of a claim: no beat may have seen the outage yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from sidecar.core.claims import MANUAL, Claim
from sidecar.core.fleet.draft import Draft
from sidecar.core.fleet.records import Cull, FleetState, Trial
from sidecar.core.types import US_PER_S

CALM_US: Final = 60 * US_PER_S
"""So long the fleet has to be well before its next sickness is another one."""

NOTED_EVERY_US: Final = 10 * US_PER_S
"""How often the fleet's state records that most of the fleet is still sick: each record is a commit."""

NEVER_US: Final = 2**60

FIRST: Final = 1
"""Maximum number of culls without an outcome at the beginning of an episode."""

DAY_US: Final = 24 * 3600 * US_PER_S
"""The longest pause, unless the window is longer."""

FORGIVEN: Final = {"failures": 0, "paused_us": 0, "pause_us": 0}
"""The fields of a trial without a failure."""

MOST_CAUSES: Final = 20
"""Maximum number of causes: the apps choose their words, and each has a record."""

OTHER: Final = "other"
"""The name for all further causes."""


def notice(draft: Draft) -> None:
    """Begin and end the episodes of all causes, as the view shows."""
    view, now_us = draft.view, draft.now_us
    causes = dict(view.causes)
    if isinstance(draft.request.asked, Claim) and draft.request.asked.cause != MANUAL:
        causes.setdefault(draft.request.asked.cause, 1)
    probation_us = draft.limits.probation_us
    for cause, trial in draft.trials.items():
        draft.trials[cause] = _in_episode(trial, now_us, probation_us, is_suspect=causes.get(cause, 0) > 0)
    if not is_majority(view.median_errors, draft.limits.error_limit, draft.suspect, view.alive):
        return
    if now_us - draft.majority_us > CALM_US:
        draft.trials = {cause: _at_episode_begin(trial, now_us) for cause, trial in draft.trials.items()}
    if _is_stale(draft.majority_us, now_us):
        draft.majority_us = now_us


def is_due(state: FleetState, causes: Mapping[str, int], now_us: int, *, is_sick: bool) -> bool:
    """Whether a beat shows something of the episodes that has to be written; ``is_sick``: most of the fleet is."""
    if is_sick and _is_stale(state.majority_us, now_us):
        return True
    for cause, trial in state.trials.items():
        is_suspect = causes.get(cause, 0) > 0
        if _in_episode(trial, now_us, NEVER_US, is_suspect=is_suspect) != trial:  # an end is due by FleetState.due_us
            return True
    return False


def is_majority(median_errors: int, error_limit: int, suspect: int, alive: int) -> bool:
    """Whether most of the fleet is sick; a limit of 0 is none, a median below 0 is not known."""
    return 0 < error_limit <= median_errors or 2 * suspect >= alive > 1


def _is_stale(noted_us: int, now_us: int) -> bool:
    return not 0 <= now_us - noted_us < NOTED_EVERY_US


def _in_episode(trial: Trial, now_us: int, probation_us: int, *, is_suspect: bool) -> Trial:
    """The trial, with the begin or the end of its episode; ``is_suspect``: its cause has suspects now."""
    is_over = bool(trial.quiet_us) and now_us - trial.quiet_us >= probation_us
    if not is_suspect:
        if is_over:
            return replace(trial, limit=FIRST, began_us=0, quiet_us=0)
        return replace(trial, quiet_us=now_us) if trial.began_us and not trial.quiet_us else trial
    if is_over or not trial.began_us:
        return _at_episode_begin(trial, now_us)
    return replace(trial, quiet_us=0) if trial.quiet_us else trial


def _at_episode_begin(trial: Trial, now_us: int) -> Trial:
    """The trial in an episode that begins now. Pauses go on: what did not help need not help now."""
    return replace(trial, limit=FIRST, began_us=now_us, quiet_us=0)


def name(draft: Draft, cause: str) -> str:
    """The cause under which a cull counts: ``OTHER`` for all beyond the first ``MOST_CAUSES``."""
    is_own = cause == MANUAL or cause in draft.trials or len(draft.trials) < MOST_CAUSES
    return cause if is_own else OTHER


def culled(draft: Draft, cause: str) -> None:
    """Record a cull for this cause."""
    _learn(draft, cause, began_us=draft.trial(cause).began_us or draft.now_us)


def helped(draft: Draft, cull: Cull) -> None:
    """Record that a cull helped. One of an earlier episode says nothing about this one."""
    trial = draft.trial(cull.cause)
    is_of_this_episode = 0 < trial.began_us <= cull.at_us
    limit = min(2 * trial.limit, max(FIRST, draft.limits.capacity))
    _learn(draft, cull.cause, **({"limit": limit, **FORGIVEN} if is_of_this_episode else {}))


def failed(draft: Draft, cull: Cull) -> None:
    """Record that a cull did not help, or no more than waiting.

    A cull from before the pause does not make it longer.
    """
    trial, window_us = draft.trial(cull.cause), draft.limits.window_us
    if trial.failures and cull.at_us < trial.paused_us:
        _learn(draft, cull.cause)
        return
    pause_us = min(window_us << min(trial.failures, 19), max(DAY_US, window_us))
    failures = trial.failures + 1
    _learn(draft, cull.cause, limit=FIRST, failures=failures, paused_us=draft.now_us, pause_us=pause_us)


def unclear(draft: Draft, cull: Cull) -> None:
    """Record an unclear outcome: an unproven cause waits until a window has passed since the cull."""
    trial, now_us = draft.trial(cull.cause), draft.now_us
    wait_us = max(0, cull.at_us + draft.limits.window_us - now_us, trial.pause_left_us(now_us))
    _learn(draft, cull.cause, **({"paused_us": now_us, "pause_us": wait_us} if trial.limit == FIRST else {}))


def release(draft: Draft) -> None:
    """End all pauses: culls may be tried again for every cause, one at first."""
    for cause in draft.trials:
        _learn(draft, cause, **FORGIVEN)


def _learn(draft: Draft, cause: str, **changes: int) -> None:
    if cause != MANUAL:
        draft.trials[cause] = replace(draft.trial(cause), last_us=draft.now_us, **changes)
