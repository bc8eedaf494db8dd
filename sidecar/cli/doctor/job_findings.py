"""The findings of ``doctor`` in a job: settings that Nomad accepts, and that later restart or strand the wrong task.

The sentences are short: the table of traps in nomad/README.md says what happens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Final

from sidecar.cli.doctor import findings, job_checks, job_settings
from sidecar.cli.doctor.findings import Finding
from sidecar.cli.doctor.job import Block
from sidecar.cli.doctor.job_pair import Check, Pair, restart_of, services_of
from sidecar.config import sources
from sidecar.config.settings import ALONE, PREFIX, Config

HAPROXY_S: Final = 6.0
"""HAProxy notices within this time that a container is down: the slowest of the configurations in deploy/haproxy."""

REPLACED_S: Final = 60.0
MEMORY_MB: Final = 128
"""The daemon, and one command such as ``doctor`` beside it."""

WAIT_S: Final = 1.0
"""HAProxy follows Nomad within this time and that of a poll, which is less than the shutdown_delay that we ship."""

_LISTENERS: Final = {"public": "health answers", "agent": "agent-check"}
_AGENT_TAG: Final = re.compile(r"agent-port=\$\{NOMAD_(HOST_)?PORT_(\w+)\}")
_NOMAD_SERVICES: Final = re.compile(r"\b(?:nomadService|service)\b")
_PASSWORD: Final = re.compile(r"://[^/\s@]*@")

_ok = partial(findings.ok, "job")
_warn = partial(findings.warn, "job")
_fail = partial(findings.fail, "job")


def of_job(job: Block) -> Iterator[Finding]:
    """The findings of every group with an arbiter in it, and of the files that HAProxy gets from Nomad."""
    groups = job.blocks("TaskGroups")
    beside = [(group, task) for group in groups for task in group.blocks("Tasks") if _is_arbiter(task)]
    of_balancer = [found for group in groups for found in _of_balancer(group)]
    if not beside and not of_balancer:
        yield _warn("no task of it runs a health-arbiter: none has ARBITER_* in its env")
    yield from of_balancer
    for group, arbiter in beside:
        for found in (*_of_arbiter(group, arbiter), *_of_replacement(job, group)):
            yield found._replace(sentence=f"group {group.text('Name')}: {found.sentence}")


def _is_arbiter(task: Block) -> bool:
    names = (name for name in task.block("Env") if name not in sources.APP_VARIABLES)
    return any(name.startswith(PREFIX) for name in names) or "arbiter" in task.text("Name")


def _is_sidecar(task: Block) -> bool:
    return bool(task.block("Lifecycle").flag("Sidecar"))


def _of_arbiter(group: Block, arbiter: Block) -> Iterator[Finding]:
    ports = job_settings.ports_of(group)
    read = job_settings.read(arbiter, ports)
    if read.problems:  # without settings nothing else can be judged
        yield from map(_fail, read.problems)
        return
    checks = [Check(check, service, task) for service, task in services_of(group) for check in service.blocks("Checks")]
    pair = Pair(group, arbiter, read.settings, ports, checks, read.is_public_secured)
    yield from _of_settings(read.settings, has_file=read.has_file)
    yield from _of_action(pair)
    yield from job_checks.of_checks(pair)
    yield from _of_network(pair)
    yield from _of_task(pair)
    yield from _of_secrets(arbiter)
    for app in group.blocks("Tasks"):
        if app.text("Name") != arbiter.text("Name") and not _is_sidecar(app):
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
    name, of_nomad = pair.action, pair.settings.action.nomad_task
    if name == "check":
        return
    if name == "exit":
        yield _fail("ARBITER_ACTION exit restarts the arbiter alone: set nomad-restart, nomad-stop or check")
        return
    yield _ok(f"ARBITER_ACTION {name} is carried out {pair.settings.culling.drain:g} s after the grant")
    if any(check.limit for check in pair.asking):
        yield _warn(f"ARBITER_ACTION {name} with a check_restart of /health: leave one of the two out")
    if name.startswith("nomad-") and not _has_token(pair.arbiter):
        yield _fail(f"ARBITER_ACTION {name} needs identity {{ file = true }} in {pair.arbiter.text('Name')}")
    if name == "nomad-restart" and of_nomad not in (task.text("Name") for task in pair.group.blocks("Tasks")):
        yield _fail(f"ARBITER_NOMAD_TASK {of_nomad} is no task of the group")


def _has_token(task: Block) -> bool:
    """Whether Nomad writes the token of its own identity into a file: another identity has a name, and its file too."""
    identities = (task.block("Identity"), *task.blocks("Identities"))
    return any(each.flag("File") and each.text("Name", "default") == "default" for each in identities)


# -- network and tasks ------------------------------------------------------------------------------------------


def _of_network(pair: Pair) -> Iterator[Finding]:
    mode = next((network.text("Mode") for network in pair.group.blocks("Networks")), "")
    if mode not in ("bridge", "host") and not pair.settings.server.socket:
        yield _fail("the tasks share no localhost: set network mode bridge, or ARBITER_SOCKET")
    for listener, what in _LISTENERS.items():
        if (port := pair.port(listener)) and port not in pair.ports.values():
            yield _warn(f"no port of the group leads to the {what} at {port} (ARBITER_{listener.upper()}_LISTEN)")
    tags = (str(tag) for service, _ in services_of(pair.group) for tag in service.values("Tags"))
    for of_host, label in (found.groups() for tag in tags if (found := _AGENT_TAG.search(tag))):
        if pair.ports.get(label) != pair.port("agent"):
            yield _fail(f"the tag agent-port names port {label}, and not that of ARBITER_AGENT_LISTEN")
        elif not of_host and mode == "bridge":
            yield _fail(f"the tag agent-port has the port inside the allocation: write NOMAD_HOST_PORT_{label}")


def _of_task(pair: Pair) -> Iterator[Finding]:
    arbiter, name = pair.arbiter, pair.arbiter.text("Name")
    attempts, delay_s, mode, interval_s = restart_of(pair.group, arbiter)
    if mode != "delay":
        yield _fail(f"restart mode {mode} of {name}: a broken arbiter takes the app down; set delay")
    elif attempts * delay_s < interval_s:
        yield _warn(f"restart of {name}: after {attempts} restarts it stays away; attempts x delay has to be interval")
    if not _is_sidecar(arbiter):
        yield _warn(f"{name} has no lifecycle with sidecar = true: it does not live and end with the app")
    if (kill_s := arbiter.seconds("KillTimeout", 5.0)) <= pair.settings.server.stop_drain:
        yield _warn(f"kill_timeout {kill_s:g} s of {name} is not above ARBITER_STOP_DRAIN")
    if (memory := arbiter.block("Resources").number("MemoryMB", 300)) < MEMORY_MB:
        yield _warn(f"memory {memory} of {name}: below {MEMORY_MB} the kernel may kill doctor, or it")
    image = arbiter.block("Config").text("image")
    tag = image.rpartition("/")[2].partition(":")[2]
    if image and not {"@", "$"} & {*image} and tag in ("", "latest"):
        yield _warn(f"image {image} of {name} has no fixed tag: the fleet runs several versions")


def _of_secrets(arbiter: Block) -> Iterator[Finding]:
    name, config, env = arbiter.text("Name"), arbiter.block("Config"), arbiter.block("Env")
    words = [config.text("command"), *map(str, config.values("args")), *map(env.text, env)]
    if any(map(_PASSWORD.search, words)):
        yield _fail(f"a password stands in the args or the env of {name}, for all who read the job; use a template")
    if any(template.text("ChangeMode", "restart") == "restart" for template in arbiter.blocks("Templates")):
        yield _warn(f"change_mode restart of a template of {name} restarts the whole fleet at once; set noop")


def _of_app(pair: Pair, app: Block) -> Iterator[Finding]:
    name, attempts = app.text("Name"), restart_of(pair.group, app).attempts
    if (attempts or pair.action == "nomad-restart") and not pair.settings.app.app_port:
        yield _warn(f"{name} is restarted in place: without ARBITER_APP_PORT or its app_start it stays culled")
    if attempts and pair.action == "check":
        yield _warn(f"restart attempts {attempts} of {name}: a culled app stays on its node; set attempts = 0")
    if services_of(pair.group) and not (app.seconds("ShutdownDelay") or pair.group.seconds("ShutdownDelay")):
        yield _warn(f'shutdown_delay 0 s of {name}: requests still come when it has ended; set "10s"')


def _of_replacement(job: Block, group: Block) -> Iterator[Finding]:
    """Whether a failed allocation is replaced soon, each time; the policy of a group goes before that of its job."""
    policy = group.block("ReschedulePolicy") if [*group.block("ReschedulePolicy")] else job.block("Reschedule")
    is_limited = policy.flag("Unlimited") is False or policy.number("Attempts") > 0
    delay_s = policy.seconds("Delay", 30.0)
    if is_limited or policy.text("DelayFunction") != "constant" or delay_s > REPLACED_S:
        yield _warn('reschedule is slow or limited: set delay "10s", delay_function "constant", unlimited true')


def _of_balancer(group: Block) -> Iterator[Finding]:
    """Whether a HAProxy that gets its servers from Nomad's services hears in time of those that end."""
    for task, template in ((each, template) for each in group.blocks("Tasks") for template in each.blocks("Templates")):
        named = f"the template {template.text('DestPath')} of {task.text('Name')}"
        if not (_NOMAD_SERVICES.search(template.text("EmbeddedTmpl")) and "haproxy" in named.lower()):
            continue
        named, wait_s = f"group {group.text('Name')}: {named}", template.block("Wait").seconds("Min", 5.0)
        if wait_s > WAIT_S:
            text = f"{named} waits {wait_s:g} s or longer, and HAProxy asks allocations that have ended"
            yield _warn(f'{text}; write wait {{ min = "500ms", max = "2s" }} into it')
        else:
            yield _ok(f"{named} follows Nomad in time")
