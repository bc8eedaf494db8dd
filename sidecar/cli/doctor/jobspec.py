"""A job of Nomad in JSON, as ``nomad job run -output`` and the API write it: groups with their tasks and checks.

Durations are in nanoseconds, and what the job leaves out is null or missing; then Nomad's default counts.
(https://developer.hashicorp.com/nomad/api-docs/json-jobs)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from sidecar.cli.terminal import cause

Block = Mapping[str, Any]

NS_PER_S: Final = 1_000_000_000
SIZE_LIMIT: Final = 4 << 20
STDIN: Final = "-"
SOME_PORT: Final = 20_000
"""Nomad chooses dynamic ports from here on; a port that the job does not know is this one or one of the next."""

HINT: Final = "give the output of nomad job run -output FILE"
_CHECK_RESTART: Final = "CheckRestart"


class JobError(click.UsageError):
    """The file cannot be read as a job; the message says why."""


class Restart(NamedTuple):
    """A restart policy; the defaults are Nomad's for a service."""

    attempts: int = 2
    delay_s: float = 15.0
    mode: str = "fail"
    interval_s: float = 1800.0


class Reschedule(NamedTuple):
    """When a failed allocation is replaced; the defaults are Nomad's for a service."""

    function: str = "exponential"
    is_limited: bool = False
    delay_s: float = 30.0


class Check(NamedTuple):
    """A check of a service."""

    task: str
    """The task of its service; empty: the service is one of the group."""
    path: str
    interval_s: float
    timeout_s: float
    limit: int
    """Failures in a row after which Nomad restarts the task; 0: it restarts nothing."""
    grace_s: float
    port: str = ""
    """The label or number of the port that it asks."""
    protocol: str = "http"
    names_host: bool = False
    """Whether it can trust a certificate."""
    kind: str = "http"
    misspelt: str = ""
    """A field that Nomad ignores, and that looks like ``CheckRestart``."""


class Template(NamedTuple):
    """A file that Nomad writes for a task."""

    data: str
    is_env: bool = False
    """Whether its lines become environment variables."""
    change_mode: str = "restart"
    destination: str = ""
    wait_s: float = 5.0
    """Time that Nomad waits for further changes before it writes the file anew."""


class Task(NamedTuple):
    """One task of a group."""

    name: str
    env: Mapping[str, str] = {}
    restart: Restart = Restart()
    is_sidecar: bool = False
    kill_timeout_s: float = 5.0
    shutdown_delay_s: float = 0.0
    driver: str = ""
    templates: tuple[Template, ...] = ()
    memory_mb: int = 300
    memory_max_mb: int = 0
    has_token: bool = False
    """Whether Nomad writes the token of the task's identity into a file."""
    image: str = ""
    words: tuple[str, ...] = ()
    """Its command line."""
    core_limit: str = ""
    """The maximum size of its core files; empty: none is set."""


class Group(NamedTuple):
    """One group of a job."""

    name: str
    tasks: tuple[Task, ...]
    checks: tuple[Check, ...]
    network_mode: str = ""
    ports: Mapping[str, int] = {}
    """Label -> port as the tasks see it."""
    tags: tuple[str, ...] = ()
    """The tags of all services."""
    reschedule: Reschedule = Reschedule()
    has_service: bool = False


def read(path: str) -> list[Group]:
    """The groups of the job in this file, ``-``: in the standard input. Raises JobError."""
    try:
        if path == STDIN:
            text = sys.stdin.read(SIZE_LIMIT)
        else:
            with Path(path).open(encoding="utf-8") as file:
                text = file.read(SIZE_LIMIT)
    except (OSError, UnicodeDecodeError) as error:
        why = cause(error) if isinstance(error, OSError) else "not UTF-8"
        raise JobError(f"--job: {path} cannot be read: {why}") from None
    try:
        value = json.loads(text)
        job = value.get("Job", value)
        return [_group(group, job) for group in job["TaskGroups"]]
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError):
        raise JobError(f"--job: {path} is not a job of Nomad in JSON: {HINT}") from None


def _group(block: Block, job: Block) -> Group:
    restart = _restart(block, Restart())
    tasks = list(_blocks(block, "Tasks"))
    network = next(_blocks(block, "Networks"), {})
    services = [(service, "") for service in _blocks(block, "Services")]
    services += [(service, str(task["Name"])) for task in tasks for service in _blocks(task, "Services")]
    delay_s = _seconds(block, "ShutdownDelay", 0.0)
    return Group(
        str(block["Name"]),
        tuple(_task(task, restart, delay_s) for task in tasks),
        tuple(check for service, task in services for check in _checks(service, task)),
        str(network.get("Mode") or ""),
        _ports(network),
        tuple(str(tag) for service, _ in services for tag in service.get("Tags") or ()),
        _reschedule({**_block(job, "Reschedule"), **_block(block, "ReschedulePolicy")}),
        has_service=bool(services),
    )


def _task(block: Block, of_group: Restart, shutdown_delay_s: float) -> Task:
    resources, config = _block(block, "Resources"), _block(block, "Config")
    ulimit = config.get("ulimit") or {}
    return Task(
        str(block["Name"]),
        {str(name): str(value) for name, value in _block(block, "Env").items()},
        _restart(block, of_group),
        is_sidecar=bool(_block(block, "Lifecycle").get("Sidecar")),
        kill_timeout_s=_seconds(block, "KillTimeout", Task("").kill_timeout_s),
        shutdown_delay_s=max(shutdown_delay_s, _seconds(block, "ShutdownDelay", 0.0)),
        driver=str(block.get("Driver") or ""),
        templates=tuple(map(_template, _blocks(block, "Templates"))),
        memory_mb=int(_given(resources, "MemoryMB", Task("").memory_mb)),
        memory_max_mb=int(_given(resources, "MemoryMaxMB", 0)),
        has_token=any(identity.get("File") is True for identity in _identities(block)),
        image=str(config.get("image") or ""),
        words=tuple(map(str, (*filter(None, [config.get("command")]), *(config.get("args") or ())))),
        core_limit=str((ulimit[0] if isinstance(ulimit, list) else ulimit).get("core") or ""),
    )


def _identities(block: Block) -> Iterator[Block]:
    """The identities of Nomad itself: another one has a name, and its file too."""
    every = (_block(block, "Identity"), *_blocks(block, "Identities"))
    return (each for each in every if each.get("Name") in (None, "", "default"))


def _template(block: Block) -> Template:
    return Template(
        str(block.get("EmbeddedTmpl") or ""),
        bool(block.get("Envvars")),
        str(block.get("ChangeMode") or Template("").change_mode),
        str(block.get("DestPath") or ""),
        _seconds(_block(block, "Wait"), "Min", Template("").wait_s),
    )


def _ports(network: Block) -> dict[str, int]:
    ports = (*_blocks(network, "ReservedPorts"), *_blocks(network, "DynamicPorts"))
    return {
        str(port["Label"]): max(int(_given(port, "To", 0)), 0) or int(_given(port, "Value", 0)) or SOME_PORT + number
        for number, port in enumerate(ports)
    }


def _reschedule(block: Block) -> Reschedule:
    is_limited = block.get("Unlimited") is False or int(_given(block, "Attempts", 0)) > 0
    function = str(block.get("DelayFunction") or Reschedule().function)
    return Reschedule(function, is_limited, _seconds(block, "Delay", Reschedule().delay_s))


def _restart(parent: Block, otherwise: Restart) -> Restart:
    block = _block(parent, "RestartPolicy")
    return Restart(
        int(_given(block, "Attempts", otherwise.attempts)),
        _seconds(block, "Delay", otherwise.delay_s),
        str(_given(block, "Mode", otherwise.mode)),
        _seconds(block, "Interval", otherwise.interval_s),
    )


def _checks(service: Block, task: str) -> Iterator[Check]:
    for check in _blocks(service, "Checks"):
        restart = _block(check, _CHECK_RESTART)
        similar = get_close_matches(_CHECK_RESTART, check, cutoff=0.8)
        yield Check(
            task,
            str(check.get("Path") or ""),
            _seconds(check, "Interval", 0.0),
            _seconds(check, "Timeout", 0.0),
            int(_given(restart, "Limit", 0)),
            _seconds(restart, "Grace", 1.0),
            port=str(check.get("PortLabel") or service.get("PortLabel") or ""),
            protocol=str(check.get("Protocol") or "http"),
            names_host=bool(check.get("TLSSkipVerify") or check.get("TLSServerName")),
            kind=str(check.get("Type") or "http"),
            misspelt=next((name for name in similar if name != _CHECK_RESTART), ""),
        )


def _blocks(parent: Block, name: str) -> Iterator[Block]:
    """The blocks of this name."""
    yield from parent.get(name) or ()


def _block(parent: Block, name: str) -> Block:
    """The block of this name, empty if there is none."""
    return dict(parent.get(name) or {})


def _given(block: Block, name: str, otherwise: Any) -> Any:
    """The value, or Nomad's default."""
    value = block.get(name)
    return otherwise if value is None else value


def _seconds(block: Block, name: str, otherwise: float) -> float:
    value = block.get(name)
    return otherwise if value is None else int(value) / NS_PER_S
