"""What ``doctor`` makes of a job file: what Nomad takes without a word, and what then restarts the wrong thing.

Sources: Nomad's documentation of check_restart, restart and lifecycle; its watcher counts failures of a check from the
first and restarts the task at the limit, so it sees nothing but failures for ``interval * (limit - 1)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sidecar.cli.doctor.findings import Finding, Level
from sidecar.cli.doctor.jobspec import Check, Group, Task
from sidecar.runlock import durations

NOMAD_PATH: Final = "/health/nomad"
IMAGE_PULL_S: Final = 60.0
CULL_S: Final = 60.0
RESTART_JITTER: Final = 1.25
"""Nomad adds up to a quarter to a restart's delay."""

START_UP_S: Final = 2.0
_HEALTH: Final = "/health"


def of_job(groups: Sequence[Group], drain_s: float, stop_drain_s: float) -> Iterator[Finding]:
    """The findings of every group with an arbiter in it; the numbers hold where the job itself sets no others."""
    beside = [(group, task) for group in groups for task in group.tasks if _is_arbiter(task)]
    if not beside:
        yield Finding(Level.WARN, "job", "no task of it runs a health-arbiter: none has ARBITER_* in its env")
    for group, arbiter in beside:
        yield from _of_checks(group, arbiter, drain_s, stop_drain_s)
        yield from _of_tasks(group, arbiter, stop_drain_s)


def _is_arbiter(task: Task) -> bool:
    return any(name.startswith("ARBITER_") for name in task.env) or "arbiter" in task.name


# -- checks -----------------------------------------------------------------------------------------------------


def _of_checks(group: Group, arbiter: Task, drain_s: float, stop_drain_s: float) -> Iterator[Finding]:
    asking = [check for check in group.checks if check.path.startswith(_HEALTH)]
    if not asking:
        text = f"no check asks {NOMAD_PATH}: Nomad never restarts a culled app"
        yield _finding(Level.FAIL, group, text)
    for check in asking:
        yield from _of_place(group, arbiter, check)
        yield from _of_times(group, check, _drain(arbiter, "DRAIN", drain_s))
        yield from _of_patience(group, arbiter, check, _drain(arbiter, "STOP_DRAIN", stop_drain_s))


def _of_place(group: Group, arbiter: Task, check: Check) -> Iterator[Finding]:
    if not check.task:
        text = f"the check of {check.path} is one of the group: its check_restart restarts the arbiter too"
        yield _finding(Level.FAIL, group, f"{text}; put the service into the app's task")
    elif check.task == arbiter.name:
        yield _finding(Level.FAIL, group, f"the check of {check.path} restarts {check.task}, the arbiter, not the app")
    if not check.limit:
        yield _finding(Level.FAIL, group, f"the check of {check.path} has no check_restart: nobody is restarted")
    elif check.limit == 1:
        yield _finding(Level.WARN, group, f"check_restart limit 1: one lost poll of {check.path} restarts the app")
    if check.limit and check.grace_s < IMAGE_PULL_S:
        text = f"check_restart grace {check.grace_s:g} s: pulling the arbiter's image may take longer, and then the app"
        yield _finding(Level.WARN, group, f"{text} is restarted for it")


def _of_times(group: Group, check: Check, drain_s: float) -> Iterator[Finding]:
    patience_s = _patience(check)
    if check.timeout_s >= check.interval_s:
        text = f"timeout {check.timeout_s:g} s is not below the interval {check.interval_s:g} s"
        yield _finding(Level.WARN, group, f"the check of {check.path}: {text}")
    if check.path != NOMAD_PATH:
        level = Level.WARN if patience_s > drain_s else Level.FAIL
        text = f"the check asks {check.path}, which fails as the drain begins: it has to ask {NOMAD_PATH}"
        late = "" if level is Level.WARN else f"; the app is restarted after {patience_s:g} s of a drain of {drain_s:g}"
        yield _finding(level, group, f"{text}{late}")
        return
    least_s, most_s = drain_s + patience_s, drain_s + patience_s + check.interval_s + 1
    text = f"a culled app is restarted {least_s:g} to {most_s:g} s after the grant: a drain of {drain_s:g} s"
    polls = f"and {check.limit} polls of {check.interval_s:g} s"
    yield _finding(Level.OK if most_s <= CULL_S or not check.limit else Level.WARN, group, f"{text} {polls}")


def _patience(check: Check) -> float:
    """How many seconds of nothing but failures restart the task, from the first one on."""
    return check.interval_s * max(0, check.limit - 1)


def _of_patience(group: Group, arbiter: Task, check: Check, stop_drain_s: float) -> Iterator[Finding]:
    """Nomad takes a check that nobody answers for a failing one."""
    patience_s = _patience(check)
    away_s = stop_drain_s + RESTART_JITTER * arbiter.restart.delay_s + START_UP_S + check.interval_s
    if check.limit and patience_s <= away_s:
        text = (
            f"{patience_s:g} s of failures restart the app, and an arbiter that is restarted is away for {away_s:g} s"
        )
        yield _finding(Level.WARN, group, f"{text}: shorten its restart delay, or raise limit")


# -- tasks ------------------------------------------------------------------------------------------------------


def _of_tasks(group: Group, arbiter: Task, stop_drain_s: float) -> Iterator[Finding]:
    if arbiter.restart.mode != "delay":
        text = f"restart mode {arbiter.restart.mode} of {arbiter.name}: a broken arbiter takes the app down"
        yield _finding(Level.FAIL, group, text)
    if not arbiter.is_sidecar:
        text = f"{arbiter.name} has no lifecycle with sidecar = true: it does not live and end with the app"
        yield _finding(Level.WARN, group, text)
    stop_s = _drain(arbiter, "STOP_DRAIN", stop_drain_s)
    if arbiter.kill_timeout_s <= stop_s:
        text = (
            f"kill_timeout {arbiter.kill_timeout_s:g} s of {arbiter.name} is not above ARBITER_STOP_DRAIN {stop_s:g} s"
        )
        yield _finding(Level.WARN, group, text)
    if "@" in arbiter.env.get("ARBITER_REDIS_URL", ""):
        yield _finding(
            Level.WARN, group, "ARBITER_REDIS_URL stands in env with a password: whoever reads the job has it"
        )
    for task in group.tasks:
        if task != arbiter and not task.is_sidecar and task.restart.attempts:
            text = f"{task.name} is restarted in place {task.restart.attempts} times"
            yield _finding(Level.WARN, group, f"{text}: it has to report its app_start, or stays culled after that")


def _drain(arbiter: Task, name: str, otherwise: float) -> float:
    """What the job sets, where that is a duration, or what holds here."""
    try:
        return durations.parse(arbiter.env[f"ARBITER_{name}"])
    except (KeyError, ValueError):
        return otherwise


def _finding(level: Level, group: Group, sentence: str) -> Finding:
    return Finding(level, "job", f"group {group.name}: {sentence}")
