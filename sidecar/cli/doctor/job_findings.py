"""The findings of ``doctor`` in a job: settings that Nomad accepts, and by which a cull fails or hits another task.

Each is here because a real Nomad then restarts without a token, restarts the wrong task or nothing, does not replace
what failed, or shows the wrong health. The sentences are short: the traps in nomad/README.md say what happens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Final

from sidecar.cli import doctor
from sidecar.cli.doctor import Finding
from sidecar.cli.doctor.job import Block, Check, Pair, blocks, field, name_of, pair_of, restart_of, seconds, services_of
from sidecar.config import sources
from sidecar.config.settings import PREFIX, WITHOUT_REDIS

NOMAD_PATH: Final = "/health/nomad"
IMAGE_PULL_S: Final = 60.0
REPLACED_S: Final = 60.0
RESTART_JITTER: Final = 1.25
"""Nomad adds up to a quarter to a restart's delay."""

START_UP_S: Final = 2.0
MEMORY_MB: Final = 128
"""The daemon, and one command such as ``doctor`` beside it."""

_LISTENERS: Final = {"public": "health answers", "agent": "agent-check"}
_AGENT_TAG: Final = re.compile(r"agent-port=\$\{NOMAD_(HOST_)?PORT_(\w+)\}")
_PASSWORD: Final = re.compile(r"://[^/\s@]*@")

_ok = partial(doctor.ok, "job")
_warn = partial(doctor.warn, "job")
_fail = partial(doctor.fail, "job")


def of_job(job: Block) -> Iterator[Finding]:
    """The findings of every group with an arbiter in it."""
    groups = blocks(job, "TaskGroups")
    beside = [(group, task) for group in groups for task in blocks(group, "Tasks") if _is_arbiter(task)]
    if not beside:
        yield _warn("no task of it runs a health-arbiter: none has ARBITER_* in its env")
    for group, arbiter in beside:
        for found in (*_of_pair(pair_of(group, arbiter)), *_of_replacement(job, group)):
            yield found._replace(sentence=f"group {name_of(group)}: {found.sentence}")


def _is_arbiter(task: Block) -> bool:
    names = (name for name in field(task, "Env", Block()) if name not in sources.APP_VARIABLES)
    return any(name.startswith(PREFIX) for name in names) or "arbiter" in name_of(task)


def _is_sidecar(task: Block) -> bool:
    return field(task, "Lifecycle.Sidecar", default=False)


def _of_pair(pair: Pair) -> Iterator[Finding]:
    if pair.problems:  # without settings nothing else can be judged
        yield from map(_fail, pair.problems)
        return
    if not pair.settings.redis.redis_url:
        yield _warn(WITHOUT_REDIS[pair.settings.identity.mode])
    yield from _of_action(pair)
    yield from _of_checks(pair)
    yield from _of_network(pair)
    yield from _of_task(pair)
    yield from _of_secrets(pair.arbiter)
    for app in blocks(pair.group, "Tasks"):
        if name_of(app) != name_of(pair.arbiter) and not _is_sidecar(app):
            yield from _of_app(pair, app)


def _of_replacement(job: Block, group: Block) -> Iterator[Finding]:
    """Whether a failed allocation is replaced soon, each time; the policy of a group goes before that of its job."""
    policy = field(group, "ReschedulePolicy", Block()) or field(job, "Reschedule", Block())
    is_limited = not field(policy, "Unlimited", default=True) or field(policy, "Attempts", 0) > 0
    delay_s = seconds(policy, "Delay", 30.0)
    if is_limited or field(policy, "DelayFunction", "") != "constant" or delay_s > REPLACED_S:
        yield _warn('reschedule is slow or limited: set delay "10s", delay_function "constant", unlimited true')


# -- what replaces a culled app ---------------------------------------------------------------------------------


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
        yield _fail(f"ARBITER_ACTION {name} needs identity {{ file = true }} in {name_of(pair.arbiter)}")
    if name == "nomad-restart" and of_nomad not in (name_of(task) for task in blocks(pair.group, "Tasks")):
        yield _fail(f"ARBITER_NOMAD_TASK {of_nomad} is no task of the group")


def _has_token(task: Block) -> bool:
    """Whether Nomad writes the token of its own identity into a file: another identity has a name, and its file too."""
    identities = (field(task, "Identity", Block()), *blocks(task, "Identities"))
    return any(
        field(each, "File", default=False) and field(each, "Name", "default") == "default" for each in identities
    )


def _of_checks(pair: Pair) -> Iterator[Finding]:
    """Whether one restarts a culled app, and none restarts anything else."""
    if not pair.asking and pair.action == "check":
        yield _fail(f"no check asks {NOMAD_PATH}: Nomad never restarts a culled app")
    for check in pair.checks:
        if check in pair.asking:
            yield from _of_asking(pair, check)
        elif check.limit:
            yield _warn(f"the check of port {check.port} has a check_restart, which does not ask the fleet")


def _of_asking(pair: Pair, check: Check) -> Iterator[Finding]:
    named, port, asked = f"the check of {check.path}", pair.port("public"), check.block
    if check.port not in ("", str(port)) and pair.ports.get(check.port) != port:
        yield _fail(f"{named} asks port {check.port}, and not {port}, that of ARBITER_PUBLIC_LISTEN")
    trusts = field(asked, "Protocol", "") == "https" and (
        field(asked, "TLSSkipVerify", default=False) or field(asked, "TLSServerName", "")
    )
    if pair.is_public_secured and not trusts:
        yield _fail(f"{named} fails always: TLS needs protocol https, and tls_skip_verify or tls_server_name")
    if pair.action != "check":
        return
    if check.path != NOMAD_PATH:
        yield _fail(f"{named} fails as the drain begins: it has to ask {NOMAD_PATH}")
    if check.task in ("", name_of(pair.arbiter)):
        yield _fail(f"{named} restarts the arbiter: put its service into the app's task")
    if not check.limit:
        yield _fail(f"{named} has no check_restart: it restarts nothing")
        return
    yield from _of_times(pair, check)


def _of_times(pair: Pair, check: Check) -> Iterator[Finding]:
    """Nomad counts failures from the first, so it restarts the app at the last of ``limit``. No answer is a failure."""
    grace_s, interval_s = seconds(check.block, "CheckRestart.Grace", 1.0), seconds(check.block, "Interval")
    drain_s, patience_s = pair.settings.culling.drain, interval_s * (check.limit - 1)
    delay_s = RESTART_JITTER * restart_of(pair.group, pair.arbiter).delay_s
    away_s = pair.settings.server.stop_drain + delay_s + START_UP_S + interval_s
    if grace_s < IMAGE_PULL_S:
        yield _warn(f"check_restart grace {grace_s:g} s: pulling the arbiter's image may take longer")
    if patience_s <= away_s:
        text = f"{patience_s:g} s of failures restart the app, and a restarted arbiter is away for {away_s:g} s"
        yield _warn(f"{text}: shorten its restart delay, or raise limit")
    least_s = drain_s + patience_s
    after_start = f"no sooner than {grace_s + patience_s:g} s after its start"  # during the grace none counts
    times = f"{least_s:g} to {least_s + interval_s + 1:g} s after the grant, and {after_start}"
    yield _ok(f"a culled app is restarted {times}: a drain of {drain_s:g} s and {check.limit} polls")


# -- network and tasks ------------------------------------------------------------------------------------------


def _of_network(pair: Pair) -> Iterator[Finding]:
    mode = next((field(network, "Mode", "") for network in blocks(pair.group, "Networks")), "")
    if mode not in ("bridge", "host") and not pair.settings.server.socket:
        yield _fail("the tasks share no localhost: set network mode bridge, or ARBITER_SOCKET")
    for listener, what in _LISTENERS.items():
        if (port := pair.port(listener)) and port not in pair.ports.values():
            yield _warn(f"no port of the group leads to the {what} at {port} (ARBITER_{listener.upper()}_LISTEN)")
    tags = (str(tag) for service, _ in services_of(pair.group) for tag in field(service, "Tags", list[str]()))
    for of_host, label in (match.groups() for tag in tags if (match := _AGENT_TAG.search(tag))):
        if pair.ports.get(label) != pair.port("agent"):
            yield _fail(f"the tag agent-port names port {label}, and not that of ARBITER_AGENT_LISTEN")
        elif not of_host and mode == "bridge":
            yield _fail(f"the tag agent-port has the port inside the allocation: write NOMAD_HOST_PORT_{label}")


def _of_task(pair: Pair) -> Iterator[Finding]:
    arbiter, name = pair.arbiter, name_of(pair.arbiter)
    attempts, delay_s, mode, interval_s = restart_of(pair.group, arbiter)
    if mode != "delay":
        yield _fail(f"restart mode {mode} of {name}: a broken arbiter takes the app down; set delay")
    elif attempts * delay_s < interval_s:
        yield _warn(f"restart of {name}: after {attempts} restarts it stays away; attempts x delay has to be interval")
    if not _is_sidecar(arbiter):
        yield _warn(f"{name} has no lifecycle with sidecar = true: it does not live and end with the app")
    if (memory := field(arbiter, "Resources.MemoryMB", 300)) < MEMORY_MB:
        yield _warn(f"memory {memory} of {name}: below {MEMORY_MB} the kernel may kill doctor, or it")


def _of_secrets(arbiter: Block) -> Iterator[Finding]:
    name, config, env = name_of(arbiter), field(arbiter, "Config", Block()), field(arbiter, "Env", Block())
    words = [config.get("command"), config.get("args"), *env.values()]  # the driver decides of which type they are
    if any(_PASSWORD.search(str(word)) for word in words):
        yield _fail(f"a password stands in the args or the env of {name}, for all who read the job; use a template")
    if any(field(template, "ChangeMode", "restart") == "restart" for template in blocks(arbiter, "Templates")):
        yield _warn(f"change_mode restart of a template of {name} restarts the whole fleet at once; set noop")


def _of_app(pair: Pair, app: Block) -> Iterator[Finding]:
    is_in_place = restart_of(pair.group, app).attempts or pair.action == "nomad-restart"
    if is_in_place and not pair.settings.app.app_port:
        name = name_of(app)
        yield _warn(f"{name} is restarted in place: without ARBITER_APP_PORT or its app_start it stays culled")
