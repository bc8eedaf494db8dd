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

_CHECK_RESTART: Final = "CheckRestart"


class JobError(click.UsageError):
    """The file cannot be read as a job; the message says why."""


class Restart(NamedTuple):
    """A restart policy; the defaults are Nomad's for a service."""

    attempts: int = 2
    delay_s: float = 15.0
    mode: str = "fail"
    interval_s: float = 1800.0


class Check(NamedTuple):
    """A check of a service."""

    task: str
    """The task of its service; empty: the service is one of the group."""
    path: str
    port: str
    """The label or number of the port that it asks."""
    interval_s: float
    limit: int
    """Failures in a row after which Nomad restarts the task; 0: it restarts nothing."""
    grace_s: float
    is_secured: bool
    """Whether it speaks TLS, and can trust the certificate of an address."""
    misspelt: str
    """A field that Nomad ignores, and that looks like ``CheckRestart``."""


class Template(NamedTuple):
    """A file that Nomad writes for a task."""

    data: str
    destination: str
    is_env: bool
    """Whether its lines become environment variables."""
    change_mode: str
    wait_s: float
    """Time that Nomad waits for further changes before it writes the file anew."""


class Task(NamedTuple):
    """One task of a group."""

    name: str
    env: Mapping[str, str]
    restart: Restart
    is_sidecar: bool
    kill_timeout_s: float
    shutdown_delay_s: float
    image: str
    words: tuple[str, ...]
    """Its command line."""
    templates: tuple[Template, ...]
    memory_mb: int
    has_token: bool
    """Whether Nomad writes the token of the task's identity into a file."""


class Group(NamedTuple):
    """One group of a job."""

    name: str
    tasks: tuple[Task, ...]
    checks: tuple[Check, ...]
    network_mode: str
    ports: Mapping[str, int]
    """Label -> port as the tasks see it."""
    tags: tuple[str, ...]
    """The tags of all services."""
    has_service: bool
    replaced_within_s: float
    """Time until a failed allocation is replaced; infinite: later each time, or not always."""


def read(path: str) -> list[Group]:
    """The groups of the job in this file, ``-``: in the standard input. Raises JobError."""
    try:
        if path == STDIN:
            text = sys.stdin.read(SIZE_LIMIT)
        else:
            with Path(path).open(encoding="utf-8", errors="replace") as file:
                text = file.read(SIZE_LIMIT)
    except OSError as error:
        raise JobError(f"--job: {path} cannot be read: {cause(error)}") from None
    try:
        value = json.loads(text)
        job = value.get("Job", value)
        return [_group(group, job) for group in job["TaskGroups"]]
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError):
        hint = "give the output of nomad job run -output FILE"
        raise JobError(f"--job: {path} is not a job of Nomad in JSON: {hint}") from None


def _group(block: Block, job: Block) -> Group:
    restart, delay_s = _restart(block, Restart()), _seconds(block, "ShutdownDelay", 0.0)
    tasks = list(_blocks(block, "Tasks"))
    network: Block = next(_blocks(block, "Networks"), {})
    services = [(service, "") for service in _blocks(block, "Services")]
    services += [(service, str(task["Name"])) for task in tasks for service in _blocks(task, "Services")]
    return Group(
        name=str(block["Name"]),
        tasks=tuple(_task(task, restart, delay_s) for task in tasks),
        checks=tuple(check for service, task in services for check in _checks(service, task)),
        network_mode=str(network.get("Mode") or ""),
        ports=_ports(network),
        tags=tuple(str(tag) for service, _ in services for tag in _blocks(service, "Tags")),
        has_service=bool(services),
        replaced_within_s=_replaced_within_s({**_block(job, "Reschedule"), **_block(block, "ReschedulePolicy")}),
    )


def _task(block: Block, of_group: Restart, shutdown_delay_s: float) -> Task:
    config, identities = _block(block, "Config"), (_block(block, "Identity"), *_blocks(block, "Identities"))
    return Task(
        name=str(block["Name"]),
        env={str(name): str(value) for name, value in _block(block, "Env").items()},
        restart=_restart(block, of_group),
        is_sidecar=bool(_block(block, "Lifecycle").get("Sidecar")),
        kill_timeout_s=_seconds(block, "KillTimeout", 5.0),
        shutdown_delay_s=max(shutdown_delay_s, _seconds(block, "ShutdownDelay", 0.0)),
        image=str(config.get("image") or ""),
        words=tuple(map(str, (config.get("command") or "", *_blocks(config, "args")))),
        templates=tuple(map(_template, _blocks(block, "Templates"))),
        memory_mb=int(_given(_block(block, "Resources"), "MemoryMB", 300)),
        # Only an identity of Nomad itself counts: another one has a name, and its file too.
        has_token=any(each.get("File") is True and each.get("Name") in (None, "", "default") for each in identities),
    )


def _template(block: Block) -> Template:
    return Template(
        data=str(block.get("EmbeddedTmpl") or ""),
        destination=str(block.get("DestPath") or ""),
        is_env=bool(block.get("Envvars")),
        change_mode=str(block.get("ChangeMode") or "restart"),
        wait_s=_seconds(_block(block, "Wait"), "Min", 5.0),
    )


def _ports(network: Block) -> dict[str, int]:
    ports = (*_blocks(network, "ReservedPorts"), *_blocks(network, "DynamicPorts"))
    return {
        str(port["Label"]): max(int(_given(port, "To", 0)), 0) or int(_given(port, "Value", 0)) or SOME_PORT + number
        for number, port in enumerate(ports)
    }


def _replaced_within_s(block: Block) -> float:
    is_limited = block.get("Unlimited") is False or int(_given(block, "Attempts", 0)) > 0
    is_constant = block.get("DelayFunction") == "constant"
    return _seconds(block, "Delay", 30.0) if is_constant and not is_limited else float("inf")


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
            task=task,
            path=str(check.get("Path") or ""),
            port=str(check.get("PortLabel") or service.get("PortLabel") or ""),
            interval_s=_seconds(check, "Interval", 0.0),
            limit=int(_given(restart, "Limit", 0)),
            grace_s=_seconds(restart, "Grace", 1.0),
            is_secured=check.get("Protocol") == "https"
            and bool(check.get("TLSSkipVerify") or check.get("TLSServerName")),
            misspelt=next((name for name in similar if name != _CHECK_RESTART), ""),
        )


def _blocks(parent: Block, name: str) -> Iterator[Any]:
    """The values of a list."""
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
