"""The findings of ``doctor`` in a job file: settings that Nomad accepts, and that later restart the wrong task.

Sources: Nomad's documentation of check_restart, restart and lifecycle; its watcher counts failures of a check from the
first and restarts the task at the limit, so it sees nothing but failures for ``interval * (limit - 1)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from sidecar.cli.doctor import findings
from sidecar.cli.doctor.findings import Finding
from sidecar.cli.doctor.jobspec import Check, Group, Task
from sidecar.runlock import durations

NOMAD_PATH: Final = "/health/nomad"
IMAGE_PULL_S: Final = 60.0
CULL_S: Final = 60.0
RESTART_JITTER: Final = 1.25
"""Nomad adds up to a quarter to a restart's delay."""

START_UP_S: Final = 2.0
_HEALTH: Final = "/health"

_ok = partial(findings.ok, "job")
_warn = partial(findings.warn, "job")
_fail = partial(findings.fail, "job")


def of_job(groups: Sequence[Group], drain_s: float, stop_drain_s: float) -> Iterator[Finding]:
    """The findings of every group with an arbiter in it; the drains are defaults for jobs that set none."""
    beside = [(group, task) for group in groups for task in group.tasks if _is_arbiter(task)]
    if not beside:
        yield _warn("no task of it runs a health-arbiter: none has ARBITER_* in its env")
    for group, arbiter in beside:
        drains = _drain_s(arbiter, "DRAIN", drain_s), _drain_s(arbiter, "STOP_DRAIN", stop_drain_s)
        for found in (*_of_checks(group, arbiter, *drains), *_of_tasks(group, arbiter, drains[1])):
            yield found._replace(sentence=f"group {group.name}: {found.sentence}")


def _is_arbiter(task: Task) -> bool:
    return any(name.startswith("ARBITER_") for name in task.env) or "arbiter" in task.name


def _drain_s(arbiter: Task, name: str, otherwise: float) -> float:
    """The job's own setting if it is a duration, else that of this command."""
    try:
        return durations.parse(arbiter.env[f"ARBITER_{name}"])
    except (KeyError, ValueError):
        return otherwise


# -- checks -----------------------------------------------------------------------------------------------------


def _of_checks(group: Group, arbiter: Task, drain_s: float, stop_drain_s: float) -> Iterator[Finding]:
    asking = [check for check in group.checks if check.path.startswith(_HEALTH)]
    if not asking:
        yield _fail(f"no check asks {NOMAD_PATH}: Nomad never restarts a culled app")
    for check in asking:
        # Nomad restarts the task after this time of uninterrupted failures.
        patience_s = check.interval_s * max(0, check.limit - 1)
        yield from _of_place(arbiter, check)
        yield from _of_times(check, patience_s, drain_s)
        # To Nomad a check without an answer is a failing one.
        away_s = stop_drain_s + RESTART_JITTER * arbiter.restart.delay_s + START_UP_S + check.interval_s
        if check.limit and patience_s <= away_s:
            text = f"{patience_s:g} s of failures restart the app, and a restarted arbiter is away for {away_s:g} s"
            yield _warn(f"{text}: shorten its restart delay, or raise limit")


def _of_place(arbiter: Task, check: Check) -> Iterator[Finding]:
    if not check.task:
        text = f"the check of {check.path} is one of the group: its check_restart restarts the arbiter too"
        yield _fail(f"{text}; put the service into the app's task")
    elif check.task == arbiter.name:
        yield _fail(f"the check of {check.path} restarts {check.task}, the arbiter, not the app")
    if not check.limit:
        yield _fail(f"the check of {check.path} has no check_restart: it restarts nothing")
    elif check.limit == 1:
        yield _warn(f"check_restart limit 1: one lost poll of {check.path} restarts the app")
    if check.limit and check.grace_s < IMAGE_PULL_S:
        text = f"check_restart grace {check.grace_s:g} s: pulling the arbiter's image may take longer"
        yield _warn(f"{text}, and then the app is restarted for it")


def _of_times(check: Check, patience_s: float, drain_s: float) -> Iterator[Finding]:
    if check.timeout_s >= check.interval_s:
        text = f"timeout {check.timeout_s:g} s is not below the interval {check.interval_s:g} s"
        yield _warn(f"the check of {check.path}: {text}")
    if check.path != NOMAD_PATH:
        text = f"the check asks {check.path}, which fails as the drain begins: it has to ask {NOMAD_PATH}"
        if patience_s > drain_s:
            yield _warn(text)
        else:
            yield _fail(f"{text}; the app is restarted after {patience_s:g} s of a drain of {drain_s:g}")
        return
    least_s, most_s = drain_s + patience_s, drain_s + patience_s + check.interval_s + 1
    text = f"a culled app is restarted {least_s:g} to {most_s:g} s after the grant: a drain of {drain_s:g} s"
    is_soon = most_s <= CULL_S or not check.limit
    yield (_ok if is_soon else _warn)(f"{text} and {check.limit} polls of {check.interval_s:g} s")


# -- tasks ------------------------------------------------------------------------------------------------------


def _of_tasks(group: Group, arbiter: Task, stop_drain_s: float) -> Iterator[Finding]:
    name = arbiter.name
    if arbiter.restart.mode != "delay":
        yield _fail(f"restart mode {arbiter.restart.mode} of {name}: a broken arbiter takes the app down")
    if not arbiter.is_sidecar:
        yield _warn(f"{name} has no lifecycle with sidecar = true: it does not live and end with the app")
    if arbiter.kill_timeout_s <= stop_drain_s:
        text = f"kill_timeout {arbiter.kill_timeout_s:g} s of {name} is not above"
        yield _warn(f"{text} ARBITER_STOP_DRAIN {stop_drain_s:g} s")
    if "@" in arbiter.env.get("ARBITER_REDIS_URL", ""):
        yield _warn("ARBITER_REDIS_URL stands in env with a password: everybody who reads the job has it")
    for task in group.tasks:
        if task != arbiter and not task.is_sidecar and task.restart.attempts:
            text = f"{task.name} is restarted in place {task.restart.attempts} times"
            yield _warn(f"{text}: it has to report its app_start, or stays culled after that")
