"""A job of Nomad in JSON, as ``nomad job run -output`` and the API write it: its blocks, and the arbiters in it.

What the job leaves out is null or missing; then Nomad's default counts. A value that the file does not tell counts as
not set: no finding is better than a wrong one. (https://developer.hashicorp.com/nomad/api-docs/json-jobs)
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import click

from sidecar.cli.terminal import cause
from sidecar.config import addresses
from sidecar.config.load import SettingsError, load
from sidecar.config.settings import Config

T = TypeVar("T")
Block = dict[str, Any]
"""A block of the job, by Nomad's names."""

NS_PER_S: Final = 1_000_000_000
SIZE_LIMIT: Final = 4 << 20
STDIN: Final = "-"
SOME_PORT: Final = 20_000
"""Nomad chooses dynamic ports from here on; a port that the job does not know is this one or one of the next."""

_NO_JOB: Final = "--job: is not a job of Nomad in JSON: give the output of nomad job run -output FILE"
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_REDIS: Final = "ARBITER_REDIS_URL"
_NOMAD: Final = {
    "NOMAD_JOB_NAME": "job",
    "NOMAD_GROUP_NAME": "group",
    "NOMAD_NAMESPACE": "default",
    "NOMAD_ALLOC_ID": "00000000-0000-0000-0000-000000000000",
    "NOMAD_ALLOC_DIR": "/alloc",
    "NOMAD_TASK_DIR": "/local",
    "NOMAD_SECRETS_DIR": "/secrets",
    "attr.unique.network.ip-address": "127.0.0.1",
}
"""Samples of what Nomad fills in."""

_ELSEWHERE: Final = {
    **dict.fromkeys(("CONFIG", "WEBHOOK_TEMPLATE", "TOKEN_FILE", "PAGE_LISTEN"), ""),
    **dict.fromkeys(("TLS_CERT", "TLS_KEY", "TLS_CLIENT_CA", "TLS_LISTENERS"), ""),
    **dict.fromkeys(("ACTION_COMMAND", "CULL_HOOK"), sys.executable),
}
"""Settings whose files, or the files they need, are not on this machine -> a value that is right everywhere."""

_ASSIGNMENT: Final = re.compile(r"^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)=(.*?)[ \t]*$", re.MULTILINE)
_INTERPOLATION: Final = re.compile(r"\$\{(?:env\[\")?([^{}\"]*)(?:\"\])?\}")
_OF_PORT: Final = re.compile(r"NOMAD_(?:HOST_)?(PORT|ADDR|IP)_(\w+)")


class JobError(click.UsageError):
    """The file cannot be read as a job; the message says why."""


def field(block: Block, path: str, default: T) -> T:
    """The value at this path, such as ``CheckRestart.Limit``; the default for what the job leaves out.

    Raises JobError for a value of another type than the default: Nomad does not write it there.
    """
    value: object = block
    for name in path.split("."):
        if not isinstance(value, Mapping):
            raise JobError(_NO_JOB)
        value = value.get(name)
        if value is None or value == "":
            return default
    if not isinstance(value, type(default)):
        raise JobError(_NO_JOB)
    return value


def seconds(block: Block, path: str, default_s: float = 0.0) -> float:
    """The duration at this path, which Nomad writes in nanoseconds."""
    return field(block, path, round(default_s * NS_PER_S)) / NS_PER_S


def blocks(block: Block, path: str) -> list[Block]:
    """The blocks of the list at this path."""
    return field(block, path, list[Block]())


def name_of(block: Block) -> str:
    """The name of a group or a task."""
    return field(block, "Name", "")


def read(path: str) -> Block:
    """The job in this file, ``-``: in the standard input. Raises JobError."""
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
    except (ValueError, RecursionError):
        raise JobError(_NO_JOB) from None
    job: Block = field(value, "Job", value)
    if not blocks(job, "TaskGroups"):
        raise JobError(_NO_JOB)
    return job


# -- an arbiter in its group ------------------------------------------------------------------------------------


class Check(NamedTuple):
    """A check, its service, and the name of the task that it restarts; empty: the service is one of the group."""

    block: Block
    service: Block
    task: str

    @property
    def path(self) -> str:
        """What it asks for."""
        return field(self.block, "Path", "")

    @property
    def port(self) -> str:
        """The label or number of the port that it asks."""
        return field(self.block, "PortLabel", field(self.service, "PortLabel", ""))

    @property
    def limit(self) -> int:
        """Failures in a row after which Nomad restarts the task; 0: it restarts nothing."""
        return field(self.block, "CheckRestart.Limit", 0)


class Restart(NamedTuple):
    """A restart policy; the defaults are Nomad's for a service."""

    attempts: int = 2
    delay_s: float = 15.0
    mode: str = "fail"
    interval_s: float = 1800.0


class Pair(NamedTuple):
    """An arbiter in its group, with the settings that it will have."""

    group: Block
    arbiter: Block
    settings: Config
    """The defaults if there are ``problems``."""
    problems: list[str]
    ports: Mapping[str, int]
    """Label -> port as the tasks see it."""
    checks: list[Check]
    """The checks of all services of the group."""
    is_public_secured: bool
    """Whether the health answers speak TLS."""

    @property
    def action(self) -> str:
        """What the arbiter does after the drain."""
        return self.settings.action.action

    @property
    def asking(self) -> list[Check]:
        """The checks that ask the arbiter."""
        return [check for check in self.checks if check.path.startswith("/health")]

    def port(self, listener: str) -> int:
        """The port of a listener that others reach, 0 if there is none."""
        address = getattr(self.settings.server, f"{listener}_listen")
        host, port = ("", 0) if address == addresses.OFF else addresses.split(address)
        return 0 if host in _LOOPBACK else port


def pair_of(group: Block, arbiter: Block) -> Pair:
    """This arbiter, with samples in its settings in place of what Nomad fills in."""
    ports = ports_of(group)
    checks = [
        Check(check, service, task) for service, task in services_of(group) for check in blocks(service, "Checks")
    ]
    raw = {name: str(value) for name, value in field(arbiter, "Env", Block()).items()}
    from_files = [each for each in blocks(arbiter, "Templates") if field(each, "Envvars", default=False)]
    templates = [field(each, "EmbeddedTmpl", "") for each in from_files]
    for name, value in (found for data in templates for found in _ASSIGNMENT.findall(data)):
        raw[name] = value.strip("\"'")
    environ = _NOMAD | {name: _filled_in(value, ports) for name, value in raw.items()}
    environ |= {f"ARBITER_{name}": sample for name, sample in _ELSEWHERE.items() if raw.get(f"ARBITER_{name}")}
    if _REDIS in raw or templates or "ARBITER_CONFIG" in raw:  # these may have the name of a variable from elsewhere
        environ[_REDIS] = environ.get(_REDIS) or "redis://redis.internal"
    secured = addresses.listed(raw.get("ARBITER_TLS_LISTENERS", "")) if raw.get("ARBITER_TLS_CERT") else ()
    try:
        settings, problems = load({}, environ), list[str]()
    except SettingsError as error:
        settings, problems = load({}, _NOMAD), error.problems
    return Pair(group, arbiter, settings, problems, ports, checks, "public" in secured)


def _filled_in(value: str, ports: Mapping[str, int]) -> str:
    """The value with samples in it, empty if Nomad or a template fills in what the file does not tell."""

    def sample(match: re.Match[str]) -> str:
        if not (port := _OF_PORT.fullmatch(match[1])):
            return _NOMAD.get(match[1], match[0])
        if port[2] not in ports and port[1] != "IP":
            return match[0]
        number = ports.get(port[2], 0)
        return {"PORT": f"{number}", "ADDR": f"127.0.0.1:{number}", "IP": "127.0.0.1"}[port[1]]

    filled = _INTERPOLATION.sub(sample, value)
    return "" if "${" in filled or "{{" in filled else filled


def ports_of(group: Block) -> dict[str, int]:
    """Label -> port as the tasks see it."""
    network = next(iter(blocks(group, "Networks")), Block())
    ports = [*blocks(network, "ReservedPorts"), *blocks(network, "DynamicPorts")]
    return {
        field(port, "Label", ""): max(field(port, "To", 0), 0) or field(port, "Value", 0) or SOME_PORT + number
        for number, port in enumerate(ports)
    }


def services_of(group: Block) -> list[tuple[Block, str]]:
    """The services of the group and of its tasks, each with the name of its task."""
    tasks = [("", group), *((name_of(task), task) for task in blocks(group, "Tasks"))]
    return [(service, name) for name, block in tasks for service in blocks(block, "Services")]


def restart_of(group: Block, task: Block) -> Restart:
    """The policy of a task, which goes before that of its group."""
    restart = Restart()
    for policy in (field(block, "RestartPolicy", Block()) for block in (group, task)):
        restart = Restart(
            field(policy, "Attempts", restart.attempts),
            seconds(policy, "Delay", restart.delay_s),
            field(policy, "Mode", restart.mode),
            seconds(policy, "Interval", restart.interval_s),
        )
    return restart
