"""The findings of ``doctor`` in a job: settings that Nomad accepts, and that later restart or strand the wrong task.

Each has bitten at a real Nomad. Its sentence is short; the table of traps in nomad/README.md says what happens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from sidecar.cli.doctor import findings, job_settings
from sidecar.cli.doctor.findings import Finding
from sidecar.cli.doctor.job import Check, Group, Task
from sidecar.config import addresses, sources
from sidecar.config.rollout import ALONE
from sidecar.config.settings import PREFIX, Config

NOMAD_PATH: Final = "/health/nomad"
IMAGE_PULL_S: Final = 60.0
HAPROXY_S: Final = 6.0
"""HAProxy notices within this time that a container is down: the slowest of the configurations in deploy/haproxy."""

REPLACED_S: Final = 60.0
RESTART_JITTER: Final = 1.25
"""Nomad adds up to a quarter to a restart's delay."""

START_UP_S: Final = 2.0
MEMORY_MB: Final = 128
"""The daemon, and one command such as ``doctor`` beside it."""

WAIT_S: Final = 1.0
"""HAProxy follows Nomad within this time and that of a poll, which is less than the shutdown_delay that we ship."""

_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_LISTENERS: Final = {"public": "health answers", "agent": "agent-check"}
_AGENT_TAG: Final = re.compile(r"agent-port=\$\{NOMAD_(HOST_)?PORT_(\w+)\}")
_NOMAD_SERVICES: Final = re.compile(r"\b(?:nomadService|service)\b")
_PASSWORD: Final = re.compile(r"://[^/\s@]*@")

_ok = partial(findings.ok, "job")
_warn = partial(findings.warn, "job")
_fail = partial(findings.fail, "job")


class Pair(NamedTuple):
    """An arbiter in its group, with its settings."""

    group: Group
    arbiter: Task
    settings: Config
    is_public_secured: bool

    @property
    def action(self) -> str:
        """What the arbiter does after the drain."""
        return self.settings.action.action

    @property
    def asking(self) -> list[Check]:
        """The checks that ask the arbiter."""
        return [check for check in self.group.checks if check.path.startswith("/health")]

    def port(self, listener: str) -> int:
        """The port of a listener that others reach, 0 if there is none."""
        address = getattr(self.settings.server, f"{listener}_listen")
        host, port = ("", 0) if address == addresses.OFF else addresses.split(address)
        return 0 if host in _LOOPBACK else port


def of_job(groups: Sequence[Group]) -> Iterator[Finding]:
    """The findings of every group with an arbiter in it, and of the files that HAProxy gets from Nomad."""
    beside = [(group, task) for group in groups for task in group.tasks if _is_arbiter(task)]
    of_balancer = [found for group in groups for found in _of_balancer(group)]
    if not beside and not of_balancer:
        yield _warn("no task of it runs a health-arbiter: none has ARBITER_* in its env")
    yield from of_balancer
    for group, arbiter in beside:
        for found in _of_arbiter(group, arbiter):
            yield found._replace(sentence=f"group {group.name}: {found.sentence}")


def _is_arbiter(task: Task) -> bool:
    names = (name for name in task.env if name not in sources.APP_VARIABLES)
    return any(name.startswith(PREFIX) for name in names) or "arbiter" in task.name


def _of_arbiter(group: Group, arbiter: Task) -> Iterator[Finding]:
    read = job_settings.read(group, arbiter)
    if read.problems:  # without settings nothing else can be judged
        yield from map(_fail, read.problems)
        return
    pair = Pair(group, arbiter, read.settings, read.is_public_secured)
    yield from _of_settings(read.settings, has_file=read.has_file)
    yield from _of_action(pair)
    yield from _of_checks(pair)
    yield from _of_network(pair)
    yield from _of_task(arbiter, read.settings)
    if group.replaced_within_s > REPLACED_S:
        yield _warn('reschedule is slow or limited: set delay "10s", delay_function "constant", unlimited true')
    for app in group.tasks:
        if app != arbiter and not app.is_sidecar:
            yield from _of_app(pair, app)


def _of_settings(settings: Config, *, has_file: bool) -> Iterator[Finding]:
    drain_s = settings.culling.drain
    if not settings.redis.redis_url:
        yield _warn(ALONE[settings.identity.mode])
    if not settings.judging.grace and not has_file:
        yield _warn("no ARBITER_GRACE: an app that is slow to start is judged at once")
    if drain_s <= HAPROXY_S:
        yield _warn(f"ARBITER_DRAIN {drain_s:g} s: HAProxy may notice a cull only after {HAPROXY_S:g} s")


def _of_action(pair: Pair) -> Iterator[Finding]:
    action, name = pair.settings.action, pair.action
    if name == "check":
        return
    if name == "exit":
        yield _fail("ARBITER_ACTION exit restarts the arbiter alone: set nomad-restart, nomad-stop or check")
        return
    yield _ok(f"ARBITER_ACTION {name} is carried out {pair.settings.culling.drain:g} s after the grant")
    if any(check.limit for check in pair.asking):
        yield _warn(f"ARBITER_ACTION {name} with a check_restart of /health: leave one of the two out")
    if name.startswith("nomad-") and not pair.arbiter.has_token:
        yield _fail(f"ARBITER_ACTION {name} needs identity {{ file = true }} in {pair.arbiter.name}")
    if name == "nomad-restart" and all(task.name != action.nomad_task for task in pair.group.tasks):
        yield _fail(f"ARBITER_NOMAD_TASK {action.nomad_task} is no task of the group")


# -- checks -----------------------------------------------------------------------------------------------------


def _of_checks(pair: Pair) -> Iterator[Finding]:
    asking = pair.asking
    if len(asking) == len(pair.group.checks):
        yield _warn("no check asks the app itself: a deployment of an app that does not listen is successful")
    if not asking and pair.action == "check":
        yield _fail(f"no check asks {NOMAD_PATH}: Nomad never restarts a culled app")
    for check in pair.group.checks:
        if check.misspelt:
            yield _fail(f"{check.misspelt} in a check of port {check.port}: Nomad ignores it; write CheckRestart")
        if check in asking:
            yield from _of_asking(pair, check)
        elif check.limit:
            yield _warn(f"the check of port {check.port} has a check_restart, which does not ask the fleet")


def _of_asking(pair: Pair, check: Check) -> Iterator[Finding]:
    named, port = f"the check of {check.path}", pair.port("public")
    if check.port not in ("", str(port)) and pair.group.ports.get(check.port) != port:
        yield _fail(f"{named} asks port {check.port}, and not {port}, that of ARBITER_PUBLIC_LISTEN")
    if pair.is_public_secured and not check.is_secured:
        yield _fail(f"{named} fails always: TLS needs protocol https, and tls_skip_verify or tls_server_name")
    if pair.action != "check":
        return
    if check.path != NOMAD_PATH:
        yield _fail(f"{named} fails as the drain begins: it has to ask {NOMAD_PATH}")
    if check.task in ("", pair.arbiter.name):
        yield _fail(f"{named} restarts the arbiter: put its service into the app's task")
    if not check.limit:
        yield _fail(f"{named} has no check_restart: it restarts nothing")
        return
    yield from _of_times(pair, check)


def _of_times(pair: Pair, check: Check) -> Iterator[Finding]:
    """Nomad counts failures from the first, so it restarts the app at the last of ``limit``. No answer is a failure."""
    drain_s, patience_s = pair.settings.culling.drain, check.interval_s * (check.limit - 1)
    delay_s = RESTART_JITTER * pair.arbiter.restart.delay_s
    away_s = pair.settings.server.stop_drain + delay_s + START_UP_S + check.interval_s
    if check.grace_s < IMAGE_PULL_S:
        yield _warn(f"check_restart grace {check.grace_s:g} s: pulling the arbiter's image may take longer")
    if patience_s <= away_s:
        text = f"{patience_s:g} s of failures restart the app, and a restarted arbiter is away for {away_s:g} s"
        yield _warn(f"{text}: shorten its restart delay, or raise limit")
    least_s = drain_s + patience_s
    after_start = f"no sooner than {check.grace_s + patience_s:g} s after its start"  # during the grace none counts
    times = f"{least_s:g} to {least_s + check.interval_s + 1:g} s after the grant, and {after_start}"
    yield _ok(f"a culled app is restarted {times}: a drain of {drain_s:g} s and {check.limit} polls")


# -- network and tasks ------------------------------------------------------------------------------------------


def _of_network(pair: Pair) -> Iterator[Finding]:
    mode, ports = pair.group.network_mode, pair.group.ports
    if mode not in ("bridge", "host") and not pair.settings.server.socket:
        yield _fail("the tasks share no localhost: set network mode bridge, or ARBITER_SOCKET")
    for listener, what in _LISTENERS.items():
        if (port := pair.port(listener)) and port not in ports.values():
            yield _warn(f"no port of the group leads to the {what} at {port} (ARBITER_{listener.upper()}_LISTEN)")
    for of_host, label in (found.groups() for tag in pair.group.tags if (found := _AGENT_TAG.search(tag))):
        if ports.get(label) != pair.port("agent"):
            yield _fail(f"the tag agent-port names port {label}, and not that of ARBITER_AGENT_LISTEN")
        elif not of_host and mode == "bridge":
            yield _fail(f"the tag agent-port has the port inside the allocation: write NOMAD_HOST_PORT_{label}")


def _of_task(arbiter: Task, settings: Config) -> Iterator[Finding]:
    name, (attempts, delay_s, mode, interval_s) = arbiter.name, arbiter.restart
    if mode != "delay":
        yield _fail(f"restart mode {mode} of {name}: a broken arbiter takes the app down; set delay")
    elif attempts * delay_s < interval_s:
        yield _warn(f"restart of {name}: after {attempts} restarts it stays away; attempts x delay has to be interval")
    if not arbiter.is_sidecar:
        yield _warn(f"{name} has no lifecycle with sidecar = true: it does not live and end with the app")
    if arbiter.kill_timeout_s <= settings.server.stop_drain:
        yield _warn(f"kill_timeout {arbiter.kill_timeout_s:g} s of {name} is not above ARBITER_STOP_DRAIN")
    if arbiter.memory_mb < MEMORY_MB:
        yield _warn(f"memory {arbiter.memory_mb} of {name}: below {MEMORY_MB} the kernel may kill doctor, or it")
    tag = arbiter.image.rpartition("/")[2].partition(":")[2]
    if arbiter.image and not {"@", "$"} & {*arbiter.image} and tag in ("", "latest"):
        yield _warn(f"image {arbiter.image} of {name} has no fixed tag: the fleet runs several versions")
    if any(map(_PASSWORD.search, (*arbiter.words, *arbiter.env.values()))):
        yield _fail(f"a password stands in the args or the env of {name}, for all who read the job; use a template")
    if any(template.change_mode == "restart" for template in arbiter.templates):
        yield _warn(f"change_mode restart of a template of {name} restarts the whole fleet at once; set noop")


def _of_app(pair: Pair, app: Task) -> Iterator[Finding]:
    attempts = app.restart.attempts
    if (attempts or pair.action == "nomad-restart") and not pair.settings.app.app_port:
        yield _warn(f"{app.name} is restarted in place: without ARBITER_APP_PORT or its app_start it stays culled")
    if attempts and pair.action == "check":
        yield _warn(f"restart attempts {attempts} of {app.name}: a culled app stays on its node; set attempts = 0")
    if pair.group.has_service and not app.shutdown_delay_s:
        yield _warn(f'shutdown_delay 0 s of {app.name}: requests still come when it has ended; set "10s"')


def _of_balancer(group: Group) -> Iterator[Finding]:
    """Whether a HAProxy that gets its servers from Nomad's services hears in time of those that end."""
    for task, template in ((each, template) for each in group.tasks for template in each.templates):
        named = f"group {group.name}: the template {template.destination} of {task.name}"
        if not (_NOMAD_SERVICES.search(template.data) and "haproxy" in named.lower()):
            continue
        if template.wait_s > WAIT_S:
            text = f"{named} waits {template.wait_s:g} s or longer, and HAProxy asks allocations that have ended"
            yield _warn(f'{text}; write wait {{ min = "500ms", max = "2s" }} into it')
        else:
            yield _ok(f"{named} follows Nomad in time")
