"""The findings of ``doctor`` about the tasks of a group: how the arbiter is run, and what becomes of the app.

Sources: Nomad's documentation of restart, reschedule, lifecycle, template, resources and the Docker driver.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Final

from sidecar.cli.doctor import findings
from sidecar.cli.doctor.findings import Finding
from sidecar.cli.doctor.jobspec import Group, Task
from sidecar.config.settings import Config
from sidecar.runlock.durations import write

CONTAINERS: Final = ("docker", "podman")
MEMORY_MB: Final = 128
"""The daemon, and one command such as ``doctor`` beside it."""

REPLACED_S: Final = 60.0
MAX_KILL_TIMEOUT_S: Final = 30.0
"""The default of max_kill_timeout in Nomad's clients."""

WAIT_S: Final = 1.0
"""HAProxy follows Nomad within this time and that of a poll, which is less than the shutdown_delay that we ship."""

_SERVERS: Final = re.compile(r"\b(?:nomadService|service)\b")
_PASSWORD: Final = re.compile(r"://[^/\s@]*@")
_REDIS_URL: Final = re.compile(r"^\s*(?:export\s+)?ARBITER_REDIS_URL=(.*)$", re.MULTILINE)
_SECRETS: Final = ("${NOMAD_SECRETS_DIR}", "secrets/", "/secrets/")

_ok = partial(findings.ok, "job")
_warn = partial(findings.warn, "job")
_fail = partial(findings.fail, "job")


def of_tasks(group: Group, arbiter: Task, settings: Config) -> Iterator[Finding]:
    """The findings about the arbiter's task, its secrets, and the replacement of the app."""
    yield from _of_life(arbiter, settings)
    yield from _of_image(arbiter)
    yield from _of_memory(arbiter)
    yield from _of_secrets(arbiter)
    yield from _of_replacement(group)
    for task in group.tasks:
        is_told = settings.app.app_port or task == arbiter or task.is_sidecar
        if not is_told and (task.restart.attempts or settings.action.action == "nomad-restart"):
            text = f"{task.name} is restarted in place: set ARBITER_APP_PORT, or it has to report its app_start"
            yield _warn(f"{text}, or stays culled after that")
        if task != arbiter and not task.is_sidecar:
            yield from _of_app(group, task, settings)


def of_balancer(group: Group) -> Iterator[Finding]:
    """Whether a HAProxy that gets its servers from Nomad's services hears in time of those that end."""
    for task in group.tasks:
        for template in task.templates:
            if not (_SERVERS.search(template.data) and "haproxy" in f"{template.destination} {task.name}".lower()):
                continue
            if template.wait_s > WAIT_S:
                text = f"the template {template.destination} of {task.name} waits {template.wait_s:g} s or longer:"
                text = f"{text} HAProxy still sends requests to an allocation that has ended"
                yield _warn(f'group {group.name}: {text}; write wait {{ min = "500ms", max = "2s" }} into it')
            else:
                yield _ok(f"group {group.name}: the template {template.destination} follows Nomad in time")


def _of_app(group: Group, app: Task, settings: Config) -> Iterator[Finding]:
    attempts, _, mode, interval_s = app.restart
    if attempts and settings.action.action == "check":
        then = "waits for the rest of that time" if mode == "delay" else "is replaced"
        text = (
            f"restart attempts {attempts} of {app.name}: a culled app is restarted where it is, on a node that may be"
        )
        text = f"{text} the cause, and only after {attempts} restarts within {write(interval_s)} it {then}"
        yield _warn(f"{text}; set attempts = 0")
    if group.has_service and not app.shutdown_delay_s:
        text = f"shutdown_delay 0 s of {app.name}: at a planned stop requests still come when it has ended"
        yield _warn(f'{text}; set "10s"')


def _of_life(arbiter: Task, settings: Config) -> Iterator[Finding]:
    name = arbiter.name
    if arbiter.restart.mode != "delay":
        yield _fail(f"restart mode {arbiter.restart.mode} of {name}: a broken arbiter takes the app down")
    attempts, delay_s, mode, interval_s = arbiter.restart
    if mode == "delay" and attempts * delay_s < interval_s:
        text = f"restart of {name}: after {attempts} restarts within {write(interval_s)} Nomad waits for the rest of"
        meanwhile = "restarts the app" if settings.action.action == "check" else "nobody judges the app"
        yield _warn(f"{text} that time, and {meanwhile} meanwhile; attempts x delay has to be interval")
    if not arbiter.is_sidecar:
        yield _warn(f"{name} has no lifecycle with sidecar = true: it does not live and end with the app")
    if arbiter.kill_timeout_s <= settings.server.stop_drain:
        text = f"kill_timeout {arbiter.kill_timeout_s:g} s of {name} is not above"
        yield _warn(f"{text} ARBITER_STOP_DRAIN {settings.server.stop_drain:g} s")
    elif arbiter.kill_timeout_s > MAX_KILL_TIMEOUT_S:
        text = f"kill_timeout {arbiter.kill_timeout_s:g} s of {name}: Nomad's clients allow {MAX_KILL_TIMEOUT_S:g} s"
        yield _warn(f"{text}, unless their max_kill_timeout is longer")


def _of_image(arbiter: Task) -> Iterator[Finding]:
    image, name = arbiter.image, arbiter.name
    tag = image.rpartition("/")[2].partition(":")[2]
    if image and "@" not in image and "${" not in image and tag in ("", "latest"):
        text = f"image {image} of {name} has no fixed tag: Nomad pulls latest at every start, and the fleet"
        yield _warn(f"{text} runs several versions; name one")
    if arbiter.driver in CONTAINERS and arbiter.core_limit.partition(":")[0] != "0":
        text = f"{name} may write core files, in which its passwords and tokens are"
        yield _warn(f'{text}: write ulimit {{ core = "0" }} into its config')


def _of_memory(arbiter: Task) -> Iterator[Finding]:
    name = arbiter.name
    if arbiter.memory_mb < MEMORY_MB:
        text = f"memory {arbiter.memory_mb} of {name}: with less than {MEMORY_MB} (MiB)"
        yield _warn(f"{text} the kernel may kill doctor, or the arbiter beside it")
    if arbiter.memory_max_mb:
        text = f"memory_max {arbiter.memory_max_mb} of {name}: Nomad ignores it where memory oversubscription is off"
        yield _warn(f"{text}, as by default; what is needed has to be in memory")


def _of_secrets(arbiter: Task) -> Iterator[Finding]:
    name = arbiter.name
    if any(_PASSWORD.search(word) for word in arbiter.words):
        yield _fail(f"a password stands in the args of {name}: every user of the node can read it; use a template")
    if "@" in arbiter.env.get("ARBITER_REDIS_URL", ""):
        yield _warn("ARBITER_REDIS_URL stands in env with a password: everybody who reads the job has it")
    for template in arbiter.templates:
        url = _REDIS_URL.search(template.data)
        if url and template.destination and not template.destination.startswith(_SECRETS):
            text = f"ARBITER_REDIS_URL is written to {template.destination}, which nomad alloc fs shows"
            yield _warn(f"{text}: write it below ${{NOMAD_SECRETS_DIR}}")
        if url and template.is_env and "{{" in url[1] and "toJSON" not in url[1]:
            yield _warn("ARBITER_REDIS_URL without | toJSON in a template: a # in the password ends the value")
    if any(template.change_mode == "restart" for template in arbiter.templates):
        text = f"change_mode restart of a template of {name}: a new value restarts the arbiters of the whole fleet"
        yield _warn(f"{text} at once, and each drains its app; set noop")


def _of_replacement(group: Group) -> Iterator[Finding]:
    if group.reschedule.is_limited:
        yield _fail("reschedule is limited: after these attempts a failed app stays down; set unlimited = true")
    elif group.reschedule.function != "constant":
        text = f"reschedule is {group.reschedule.function}, as by default: each replacement waits longer, up to 1 h"
        yield _warn(f'{text}; set delay_function = "constant"')
    elif group.reschedule.delay_s > REPLACED_S:
        yield _warn(f"reschedule delay {group.reschedule.delay_s:g} s: so long no app replaces a failed one")
