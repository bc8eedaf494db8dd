"""A job of Nomad: groups with their tasks and checks, from JSON or HCL.

``nomad job run -output`` and the API write JSON (durations in nanoseconds); HCL needs the package python-hcl2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from sidecar.cli.terminal import cause

Block = Mapping[str, Any]

NS_PER_S: Final = 1_000_000_000
SIZE_LIMIT: Final = 4 << 20
_GO: Final = re.compile(r"(\d+(?:\.\d+)?)(ns|us|ms|s|m|h|d)")
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


class JobError(click.UsageError):
    """The file cannot be read as a job; the message says why."""


class Restart(NamedTuple):
    """A restart policy; the defaults are Nomad's for a service."""

    attempts: int = 2
    delay_s: float = 15.0
    mode: str = "fail"


class Check(NamedTuple):
    """A check of a service of ``task``, or of the group (``""``). With a ``limit`` of 0 it restarts nothing."""

    task: str
    path: str
    interval_s: float
    timeout_s: float
    limit: int
    grace_s: float


class Task(NamedTuple):
    """One task of a group."""

    name: str
    env: Mapping[str, str] = {}
    restart: Restart = Restart()
    is_sidecar: bool = False
    kill_timeout_s: float = 5.0


class Group(NamedTuple):
    """One group of a job."""

    name: str
    tasks: tuple[Task, ...]
    checks: tuple[Check, ...]


def read(path: str) -> list[Group]:
    """The groups of the job in this file. Raises JobError."""
    try:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(SIZE_LIMIT)
    except (OSError, UnicodeDecodeError) as error:
        why = cause(error) if isinstance(error, OSError) else "not UTF-8"
        raise JobError(f"{path} cannot be read: {why}") from None
    try:
        job = _of_json(text) if text.lstrip().startswith("{") else _of_hcl(text, path)
        return [_group(group) for group in _blocks(job, "taskgroups", "group")]
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        raise JobError(f"{path} is not a Nomad job") from None


def _of_json(text: str) -> Block:
    value = _lowered(json.loads(text))
    job: Block = value.get("job", value)
    return job


def _of_hcl(text: str, path: str) -> Block:
    try:
        import hcl2  # noqa: PLC0415 - an optional package
    except ImportError:
        raise JobError(
            f"{path} is HCL, and the package python-hcl2 is not installed: "
            "convert it to JSON with nomad job run -output FILE"
        ) from None
    try:
        parsed = _lowered(_bare(hcl2.loads(text)))
    except Exception as error:  # noqa: BLE001 - the parser's own errors have no common class
        raise JobError(f"{path} is not HCL: {type(error).__name__}") from None
    job: Block = next(iter(parsed["job"][0].values()))
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


def _bare(value: Any) -> Any:
    """The value without the additions of python-hcl2 8: quotes around texts and labels, and positions in the file."""
    if isinstance(value, dict):
        return {_bare(name): _bare(each) for name, each in value.items() if not name.startswith("__")}
    if isinstance(value, list):
        return [_bare(each) for each in value]
    is_quoted = isinstance(value, str) and len(value) > 1 and value[0] == value[-1] == '"'
    return value[1:-1] if is_quoted else value


def _blocks(parent: Block, *names: str) -> Iterator[Block]:
    """The blocks of these names; a group or task in HCL has its name as label."""
    for block in (each for name in names for each in parent.get(name) or ()):
        first: tuple[str, Any] = next(iter(block.items()), ("", None))
        label, content = first
        is_labelled = len(block) == 1 and isinstance(content, dict) and {"group", "task"} & {*names}
        yield {**content, "name": label} if is_labelled else block


def _block(parent: Block, *names: str) -> Block:
    """The first block of these names, empty if there is none."""
    for name in names:
        if found := parent.get(name):
            return dict(found[0] if isinstance(found, list) else found)
    return {}


def _group(block: Block) -> Group:
    restart = _restart(block, Restart())
    tasks = list(_blocks(block, "tasks", "task"))
    checks = [*_checks(block, ""), *(check for task in tasks for check in _checks(task, str(task["name"])))]
    return Group(str(block["name"]), tuple(_task(task, restart) for task in tasks), tuple(checks))


def _task(block: Block, of_group: Restart) -> Task:
    return Task(
        str(block["name"]),
        {str(name): str(value) for name, value in _block(block, "env").items() if not str(name).startswith("__")},
        _restart(block, of_group),
        is_sidecar=bool(_block(block, "lifecycle").get("sidecar")),
        kill_timeout_s=_seconds(block.get("killtimeout"), Task("").kill_timeout_s),
    )


def _restart(parent: Block, otherwise: Restart) -> Restart:
    block = _block(parent, "restartpolicy", "restart")
    attempts, mode = block.get("attempts", otherwise.attempts), block.get("mode", otherwise.mode)
    return Restart(int(attempts), _seconds(block.get("delay"), otherwise.delay_s), str(mode))


def _checks(parent: Block, task: str) -> Iterator[Check]:
    services = _blocks(parent, "services", "service")
    for check in (check for service in services for check in _blocks(service, "checks", "check")):
        restart = _block(check, "checkrestart")
        yield Check(
            task,
            str(check.get("path") or ""),
            _seconds(check.get("interval"), 0.0),
            _seconds(check.get("timeout"), 0.0),
            int(restart.get("limit") or 0),
            _seconds(restart.get("grace"), 1.0),
        )


def _seconds(value: object, otherwise: float) -> float:
    """A duration: nanoseconds, or text as Go writes it."""
    if value is None:
        return otherwise
    if isinstance(value, int | float):
        return value / NS_PER_S
    parts = _GO.findall(str(value))
    if not parts or "".join(map("".join, parts)) != value:
        raise ValueError("not a duration")
    return float(sum(float(number) * _UNITS[unit] for number, unit in parts))
