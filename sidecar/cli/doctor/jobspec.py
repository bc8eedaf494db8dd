"""A job of Nomad: groups with their tasks and checks, from JSON or HCL.

``nomad job run -output`` and the API write JSON (durations in nanoseconds); ``hcl`` reads HCL.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from sidecar.cli.doctor.hcl import Expression, HclError
from sidecar.cli.terminal import cause

Block = Mapping[str, Any]

NS_PER_S: Final = 1_000_000_000
SIZE_LIMIT: Final = 4 << 20
SOME_PORT: Final = 20_000
"""Nomad chooses dynamic ports from here on; a port that the file does not know is this one or one of the next."""

_GO: Final = re.compile(r"(\d+(?:\.\d+)?)(ns|us|ms|s|m|h|d)")
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


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
    """A check of a service of ``task``, or of the group (``""``). With a ``limit`` of 0 it restarts nothing.

    ``port``: the label or number of the port that it asks. ``names_host``: whether it can trust a certificate.
    """

    task: str
    path: str
    interval_s: float
    timeout_s: float
    limit: int
    grace_s: float
    port: str = ""
    protocol: str = "http"
    names_host: bool = False
    kind: str = "http"


class Template(NamedTuple):
    """A file that Nomad writes for a task; ``is_env``: its lines become environment variables."""

    data: str
    is_env: bool = False
    change_mode: str = "restart"
    destination: str = ""


class Task(NamedTuple):
    """One task of a group. ``has_token``: Nomad writes the token of its identity into a file.

    ``words``: its command line. ``core_limit``: the maximum size of its core files; empty: none is set.
    """

    name: str
    env: Mapping[str, str] = {}
    restart: Restart = Restart()
    is_sidecar: bool = False
    kill_timeout_s: float = 5.0
    driver: str = ""
    templates: tuple[Template, ...] = ()
    memory_mb: int = 300
    memory_max_mb: int = 0
    has_token: bool = False
    image: str = ""
    words: tuple[str, ...] = ()
    core_limit: str = ""


class Group(NamedTuple):
    """One group of a job. ``ports``: label -> port as the tasks see it; ``tags``: of all services."""

    name: str
    tasks: tuple[Task, ...]
    checks: tuple[Check, ...]
    network_mode: str = ""
    ports: Mapping[str, int] = {}
    tags: tuple[str, ...] = ()
    reschedule: Reschedule = Reschedule()


def read(path: str) -> list[Group]:
    """The groups of the job in this file. Raises JobError."""
    try:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(SIZE_LIMIT)
    except (OSError, UnicodeDecodeError) as error:
        why = cause(error) if isinstance(error, OSError) else "not UTF-8"
        raise JobError(f"{path} cannot be read: {why}") from None
    try:
        job = _of_json(text) if text.lstrip().startswith("{") else _of_hcl(text)
        return [_group(group, job) for group in _blocks(job, "taskgroups", "group")]
    except HclError as error:
        raise JobError(f"{path}, line {error.line}: {error}") from None
    except (ValueError, TypeError, AttributeError, KeyError, IndexError, RecursionError):
        raise JobError(f"{path} is not a Nomad job") from None


def _of_json(text: str) -> Block:
    value = _lowered(json.loads(text))
    job: Block = value.get("job", value)
    return job


def _of_hcl(text: str) -> Block:
    from sidecar.cli.doctor import hcl  # noqa: PLC0415 - only for a job in HCL

    job: Block = _lowered(hcl.loads(text))["job"][0]
    return job


# -- one form of both -------------------------------------------------------------------------------------------


def _lowered(value: Any) -> Any:
    """The value with names in lower case and without underscores; names in an environment stay."""
    if isinstance(value, list):
        return [_lowered(each) for each in value]
    if not isinstance(value, dict):
        return value
    named = ((name.lower().replace("_", ""), each) for name, each in value.items())
    return {name: each if name == "env" else _lowered(each) for name, each in named}


def _blocks(parent: Block, *names: str) -> Iterator[Block]:
    """The blocks of these names."""
    for name in names:
        yield from parent.get(name) or ()


def _block(parent: Block, *names: str) -> Block:
    """The first block of these names, empty if there is none."""
    for name in names:
        if found := parent.get(name):
            return dict(found[0] if isinstance(found, list) else found)
    return {}


def _group(block: Block, job: Block) -> Group:
    restart = _restart(block, Restart())
    tasks = list(_blocks(block, "tasks", "task"))
    network = _block(block, "networks", "network")
    services = [(service, "") for service in _blocks(block, "services", "service")]
    services += [(service, str(task["name"])) for task in tasks for service in _blocks(task, "services", "service")]
    return Group(
        str(block["name"]),
        tuple(_task(task, restart) for task in tasks),
        tuple(check for service, task in services for check in _checks(service, task)),
        str(network.get("mode") or ""),
        _ports(network),
        tuple(str(tag) for service, _ in services for tag in service.get("tags") or ()),
        _reschedule({**_block(job, "reschedule"), **_block(block, "reschedulepolicy", "reschedule")}),
    )


def _task(block: Block, of_group: Restart) -> Task:
    resources, config = _block(block, "resources"), _block(block, "config")
    return Task(
        str(block["name"]),
        {str(name): _text(value) for name, value in _block(block, "env").items()},
        _restart(block, of_group),
        is_sidecar=bool(_block(block, "lifecycle").get("sidecar")),
        kill_timeout_s=_seconds(block, "killtimeout", Task("").kill_timeout_s),
        driver=str(block.get("driver") or ""),
        templates=tuple(map(_template, _blocks(block, "templates", "template"))),
        memory_mb=_number(resources, ("memorymb", "memory"), Task("").memory_mb),
        memory_max_mb=_number(resources, ("memorymaxmb", "memorymax"), Task("").memory_max_mb),
        has_token=any(identity.get("file") is True for identity in _identities(block)),
        image=str(config.get("image") or ""),
        words=tuple(map(str, (*_items(config.get("command")), *_items(config.get("args"))))),
        core_limit=str(_block(config, "ulimit").get("core") or ""),
    )


def _identities(block: Block) -> Iterator[Block]:
    """The identities of Nomad itself: another one has a name, and its file too."""
    every = (*_blocks(block, "identities"), _block(block, "identity"), *_blocks(block, "identity"))
    return (each for each in every if isinstance(each, dict) and each.get("name", "default") in ("", "default"))


def _template(block: Block) -> Template:
    return Template(
        str(block.get("embeddedtmpl") or block.get("data") or ""),
        bool(block.get("envvars") or block.get("env")),
        str(block.get("changemode") or Template("").change_mode),
        str(block.get("destpath") or block.get("destination") or ""),
    )


def _ports(network: Block) -> dict[str, int]:
    every = [*_blocks(network, "reservedports", "dynamicports", "port")]
    found = {}
    for place, port in enumerate(every):
        named = (_number(port, (name,), 0) for name in ("to", "static", "value"))
        found[str(port.get("label") or port["name"])] = next((each for each in named if each > 0), SOME_PORT + place)
    return found


def _reschedule(block: Block) -> Reschedule:
    is_limited = block.get("unlimited") is False or _number(block, ("attempts",), 0) > 0
    function = str(block.get("delayfunction") or Reschedule().function)
    return Reschedule(function, is_limited, _seconds(block, "delay", Reschedule().delay_s))


def _restart(parent: Block, otherwise: Restart) -> Restart:
    block = _block(parent, "restartpolicy", "restart")
    attempts, mode = _number(block, ("attempts",), otherwise.attempts), block.get("mode", otherwise.mode)
    delay_s, interval_s = (_seconds(block, name, getattr(otherwise, f"{name}_s")) for name in ("delay", "interval"))
    return Restart(attempts, delay_s, str(mode), interval_s)


def _checks(service: Block, task: str) -> Iterator[Check]:
    port = service.get("portlabel") or service.get("port") or ""
    for check in _blocks(service, "checks", "check"):
        restart = _block(check, "checkrestart")
        yield Check(
            task,
            str(check.get("path") or ""),
            _seconds(check, "interval", 0.0),
            _seconds(check, "timeout", 0.0),
            _number(restart, ("limit",), 0),
            _seconds(restart, "grace", 1.0),
            port=str(check.get("portlabel") or check.get("port") or port),
            protocol=str(check.get("protocol") or "http"),
            names_host=bool(check.get("tlsskipverify") or check.get("tlsservername")),
            kind=str(check.get("type") or "http"),
        )


def _items(value: object) -> list[object]:
    """The items of a list, or an expression as the only one."""
    return value if isinstance(value, list) else [value] if value else []


def _text(value: object) -> str:
    """The value of a variable, as Nomad writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _number(block: Block, names: tuple[str, ...], otherwise: int) -> int:
    value = next((block[name] for name in names if block.get(name) is not None), otherwise)
    return int(_known(names[-1], value))


def _seconds(block: Block, name: str, otherwise: float) -> float:
    """A duration: nanoseconds, or text as Go writes it."""
    value = _known(name, block.get(name))
    if value is None:
        return otherwise
    if isinstance(value, int | float):
        return value / NS_PER_S
    parts = _GO.findall(str(value))
    if not parts or "".join(map("".join, parts)) != value:
        raise ValueError("not a duration")
    return float(sum(float(number) * _UNITS[unit] for number, unit in parts))


def _known(name: str, value: Any) -> Any:
    """The value. Raises HclError if it is an expression."""
    if isinstance(value, Expression):
        text = f"{name} = {value[2:-1]} is an expression, whose value Nomad knows: give the output of"
        raise HclError(value.line, f"{text} nomad job run -output FILE")
    return value
