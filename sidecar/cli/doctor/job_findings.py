"""The findings of ``doctor`` in a job: settings that Nomad accepts, and that later restart the wrong task.

Sources: Nomad's documentation of check_restart, restart and lifecycle; its watcher counts failures of a check from the
first and restarts the task at the limit, so it sees nothing but failures for ``interval * (limit - 1)``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from sidecar.cli.doctor import findings, job_environment, job_tasks
from sidecar.cli.doctor.findings import Finding
from sidecar.cli.doctor.job_environment import JobEnvironment
from sidecar.cli.doctor.jobspec import Check, Group, Task
from sidecar.config import addresses, sources
from sidecar.config.rollout import ALONE
from sidecar.config.settings import PREFIX, Config
from sidecar.runlock.durations import write

NOMAD_PATH: Final = "/health/nomad"
IMAGE_PULL_S: Final = 60.0
CULL_S: Final = 60.0
HAPROXY_S: Final = 6.0
"""HAProxy notices within this time that a container is down: the slowest of the configurations in deploy/haproxy."""

RESTART_JITTER: Final = 1.25
"""Nomad adds up to a quarter to a restart's delay."""

START_UP_S: Final = 2.0
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_UNREACHED: Final = {
    "public_listen": "no port of the group leads to the health answers at {} (ARBITER_PUBLIC_LISTEN): HAProxy and "
    "Prometheus do not reach them",
    "agent_listen": "no port of the group leads to the agent-check at {} (ARBITER_AGENT_LISTEN): HAProxy gets no drain "
    "and no weight from it",
    "page_listen": "no port of the group leads to the status page at {} (ARBITER_PAGE_LISTEN)",
}
_HEALTH: Final = "/health"
_AGENT_TAG: Final = re.compile(r"agent-port=\$\{NOMAD_(HOST_)?PORT_(\w+)\}")

_ok = partial(findings.ok, "job")
_warn = partial(findings.warn, "job")
_fail = partial(findings.fail, "job")


def of_job(groups: Sequence[Group]) -> Iterator[Finding]:
    """The findings of every group with an arbiter in it, and of the files that HAProxy gets from Nomad."""
    beside = [(group, task) for group in groups for task in group.tasks if _is_arbiter(task)]
    of_balancer = [found for group in groups for found in job_tasks.of_balancer(group)]
    if not beside and not of_balancer:
        yield _warn("no task of it runs a health-arbiter: none has ARBITER_* in its env")
    yield from of_balancer
    for group, arbiter in beside:
        environment = job_environment.read(group, arbiter)
        settings = environment.settings
        for found in (
            *_of_settings(environment),
            *_of_action(group, arbiter, settings),
            *_of_checks(group, arbiter, environment),
            *_of_ports(group, environment),
            *_of_network(group, arbiter, environment),
            *job_tasks.of_tasks(group, arbiter, settings),
        ):
            yield found._replace(sentence=f"group {group.name}: {found.sentence}")


def _is_arbiter(task: Task) -> bool:
    names = (name for name in task.env if name not in sources.APP_VARIABLES)
    return any(name.startswith(PREFIX) for name in names) or "arbiter" in task.name


def _of_settings(environment: JobEnvironment) -> Iterator[Finding]:
    settings = environment.settings
    yield from map(_fail, environment.problems)
    if environment.is_whole and not settings.redis.redis_url:
        yield _warn(ALONE[settings.identity.mode])
    if environment.is_whole and not settings.judging.grace:
        yield _warn("no ARBITER_GRACE: an app that is slow to start is judged at once")
    if settings.culling.drain <= HAPROXY_S:
        text = f"ARBITER_DRAIN {write(settings.culling.drain)}: HAProxy may notice only after {write(HAPROXY_S)}"
        yield _warn(f"{text}, and then sends requests to an app that is being restarted")


def _of_action(group: Group, arbiter: Task, settings: Config) -> Iterator[Finding]:
    action = settings.action.action
    if action == "check":
        return
    if action == "exit":
        text = "ARBITER_ACTION exit: Nomad restarts the arbiter alone, and the culled app goes on"
        yield _fail(f"{text}; set nomad-restart, nomad-stop or check")
        return
    does = {"nomad-restart": "restarts the app in place", "nomad-stop": "replaces the allocation"}.get(action)
    yield _ok(f"ARBITER_ACTION {action} {does or 'is carried out'} {settings.culling.drain:g} s after the grant")
    for check in group.checks:
        if check.path.startswith(_HEALTH) and check.limit:
            text = f"ARBITER_ACTION {action}, and check_restart of {check.path}: a dead arbiter has the app restarted"
            yield _warn(f"{text}; leave check_restart out")
    if action == "nomad-restart":
        yield from _of_restart(group, settings)
    if action.startswith("nomad-") and not arbiter.has_token:
        text = f"ARBITER_ACTION {action} needs the token of the task: write identity {{ file = true }} into"
        yield _fail(f"{text} {arbiter.name}")


def _of_restart(group: Group, settings: Config) -> Iterator[Finding]:
    task = next((task for task in group.tasks if task.name == settings.action.nomad_task), None)
    if task is None:
        yield _fail(f"ARBITER_NOMAD_TASK {settings.action.nomad_task} is no task of the group")


# -- checks -----------------------------------------------------------------------------------------------------


def _of_checks(group: Group, arbiter: Task, environment: JobEnvironment) -> Iterator[Finding]:
    settings = environment.settings
    asking = [check for check in group.checks if check.path.startswith(_HEALTH)]
    if len(asking) == len(group.checks):
        yield _warn("no check asks the app itself: a deployment of an app that does not listen is successful")
    for check in group.checks:
        if check.misspelt:
            text = f"{check.misspelt} of the check of {check.path or f'port {check.port}'}: Nomad knows no such field"
            yield _fail(f"{text} and ignores it; write CheckRestart")
        if check not in asking and check.limit:
            text = f"the check of {check.path or f'port {check.port}'} has a check_restart"
            yield _warn(f"{text}, which restarts the app without asking the fleet")
    for check in asking:
        yield from _of_port(group, check, environment)
    if settings.action.action != "check":
        return
    if not asking:
        yield _fail(f"no check asks {NOMAD_PATH}: Nomad never restarts a culled app")
    for check in asking:
        # Nomad restarts the task after this time of uninterrupted failures.
        patience_s = check.interval_s * max(0, check.limit - 1)
        yield from _of_place(arbiter, check)
        yield from _of_times(check, patience_s, settings.culling.drain)
        # To Nomad a check without an answer is a failing one.
        away_s = settings.server.stop_drain + RESTART_JITTER * arbiter.restart.delay_s + START_UP_S + check.interval_s
        if check.limit and patience_s <= away_s:
            text = f"{patience_s:g} s of failures restart the app, and a restarted arbiter is away for {away_s:g} s"
            yield _warn(f"{text}: shorten its restart delay, or raise limit")


def _of_port(group: Group, check: Check, environment: JobEnvironment) -> Iterator[Finding]:
    """Whether the check asks the arbiter, and speaks its protocol."""
    number = int(check.port) if check.port.isdecimal() else group.ports.get(check.port)
    listens = addresses.split(environment.settings.server.public_listen)[1]
    if check.port and number is None:
        yield _fail(f"the check of {check.path} asks port {check.port}, which is not in the network block")
    elif check.port and number != listens:
        text = f"the check of {check.path} asks port {check.port} ({number})"
        yield _fail(f"{text}, and the arbiter answers at {listens} (ARBITER_PUBLIC_LISTEN)")
    # From the variables, because the settings have no certificate that is not on this machine.
    listeners = environment.raw.get("ARBITER_TLS_LISTENERS", "") if environment.raw.get("ARBITER_TLS_CERT") else ""
    if check.kind != "http":
        yield _fail(f"the check of {check.path} is of type {check.kind}, to which a culled app is well: set http")
    is_secured = "public" in addresses.listed(listeners)
    spoken = "https" if is_secured else "http"
    if check.protocol != spoken:
        text = f"the check of {check.path} speaks {check.protocol}, and the arbiter {spoken} (ARBITER_TLS_LISTENERS)"
        yield _fail(f"{text}: it fails always")
    elif is_secured and not check.names_host:
        text = f"the check of {check.path} asks by address, which no certificate has"
        yield _fail(f"{text}: set tls_skip_verify or tls_server_name")


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
    # Failures during the grace do not count.
    first_s = check.grace_s + patience_s
    text = f"a culled app is restarted {least_s:g} to {most_s:g} s after the grant, and no sooner than {first_s:g} s"
    text = f"{text} after its start: a drain of {drain_s:g} s"
    is_soon = most_s <= CULL_S or not check.limit
    yield (_ok if is_soon else _warn)(f"{text} and {check.limit} polls of {check.interval_s:g} s")


# -- network ----------------------------------------------------------------------------------------------------


def _of_ports(group: Group, environment: JobEnvironment) -> Iterator[Finding]:
    """Whether others find the listeners of the arbiter."""
    settings = environment.settings
    # The settings have no page if its token is not on this machine.
    page = environment.raw.get("ARBITER_PAGE_LISTEN", "")
    every = {name: getattr(settings.server, name) for name in _UNREACHED}
    every |= {"page_listen": page} if "${" not in page else {}
    listens = {
        name: addresses.split(address)[1]
        for name, address in every.items()
        if address not in ("", addresses.OFF) and addresses.split(address)[0] not in _LOOPBACK
    }
    for name, port in listens.items():
        if port not in group.ports.values():
            yield _warn(_UNREACHED[name].format(port))
    if "agent_listen" in listens:
        yield from _of_agent_tag(group, listens["agent_listen"])


def _of_agent_tag(group: Group, listens: int) -> Iterator[Finding]:
    for of_host, label in (found.groups() for tag in group.tags if (found := _AGENT_TAG.search(tag))):
        if group.ports.get(label) != listens:
            text = f"the tag agent-port names port {label} ({group.ports.get(label, 'not in the network block')})"
            yield _fail(f"{text}, and the agent-check listens at {listens} (ARBITER_AGENT_LISTEN)")
        elif not of_host and group.network_mode == "bridge":
            yield _fail(f"the tag agent-port has the port inside the allocation: write NOMAD_HOST_PORT_{label}")


def _of_network(group: Group, arbiter: Task, environment: JobEnvironment) -> Iterator[Finding]:
    settings, mode = environment.settings, group.network_mode
    if mode == "none" and not settings.server.socket:
        yield _fail("network mode none without ARBITER_SOCKET: no port leads to the arbiter; set mode bridge")
    if not mode and arbiter.driver in job_tasks.CONTAINERS and not settings.server.socket:
        text = f"no network mode: {arbiter.driver} gives each task a network of its own, so the app does not reach"
        yield _fail(f"{text} the arbiter on localhost; set mode bridge, or ARBITER_SOCKET")
    if mode == "host":
        fixed = [
            f"ARBITER_{name.upper()} ({address})"
            for name in ("local_listen", "public_listen", "agent_listen", "page_listen")
            if (address := getattr(settings.server, name)) != addresses.OFF
            and "NOMAD_" not in environment.raw.get(f"ARBITER_{name.upper()}", "")
        ]
        if fixed:
            text = f"network mode host: a second allocation on a node finds {', '.join(fixed)} taken"
            yield _warn(f"{text}; take the ports from ${{NOMAD_PORT_...}}")
