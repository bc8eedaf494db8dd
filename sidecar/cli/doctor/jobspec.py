"""A job of Nomad, as far as the arbiter cares: groups with their tasks and checks, from JSON or HCL.

JSON is what ``nomad job run -output`` and the API have (durations in nanoseconds); HCL needs the package python-hcl2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

Block = Mapping[str, Any]

NS_PER_S: Final = 1_000_000_000
LONGEST: Final = 4 << 20
_GO: Final = re.compile(r"(\d+(?:\.\d+)?)(ns|us|ms|s|m|h|d)")
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_KILL_S: Final = 5.0


class JobError(Exception):
    """The file cannot be read as a job; the message says why."""


@dataclass(frozen=True)
class Restart:
    """A restart policy; Nomad's own defaults of a service."""

    attempts: int = 2
    interval_s: float = 1800.0
    delay_s: float = 15.0
    mode: str = "fail"


@dataclass(frozen=True)
class Check:
    """A check of a service; ``task``: whose service it is, ``""`` for the group's. A ``limit`` of 0 restarts nobody."""

    task: str
    path: str
    interval_s: float
    timeout_s: float
    limit: int
    grace_s: float


@dataclass(frozen=True)
class Task:
    """One task of a group."""

    name: str
    env: Mapping[str, str] = field(default_factory=dict)
    restart: Restart = Restart()
    is_sidecar: bool = False
    kill_timeout_s: float = _KILL_S


@dataclass(frozen=True)
class Group:
    """One group of a job."""

    name: str
    tasks: tuple[Task, ...]
    checks: tuple[Check, ...]


def read(path: str) -> list[Group]:
    """The groups of the job in this file. Raises JobError."""
    try:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(LONGEST)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror.lower() if isinstance(error, OSError) and error.strerror else "not UTF-8"
        raise JobError(f"{path} cannot be read: {why}") from None
    try:
        job = _of_json(text) if text.lstrip().startswith("{") else _of_hcl(text, path)
        return [_group(group) for group in _listed(job, "taskgroups", "group")]
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        raise JobError(f"{path} is not a job as Nomad has it") from None


def _of_json(text: str) -> Block:
    value = _lowered(json.loads(text))
    job: Block = value.get("job", value)
    return job


def _of_hcl(text: str, path: str) -> Block:
    try:
        import hcl2  # noqa: PLC0415 - not everybody has it
    except ImportError:
        raise JobError(
            f"{path} is HCL, and the package python-hcl2 is not here to read it: "
            "make it JSON with nomad job run -output FILE"
        ) from None
    try:
        parsed = _lowered(_bare(hcl2.loads(text)))
    except Exception as error:  # noqa: BLE001 - the parser's own errors have no common class
        raise JobError(f"{path} is no HCL: {type(error).__name__}") from None
    job: Block = next(iter(parsed["job"][0].values()))
    return job


# -- one form of both -------------------------------------------------------------------------------------------


def _lowered(value: Any) -> Any:
    """With names in lower case and without their underscores, but for the names in an environment."""
    if isinstance(value, list):
        return [_lowered(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {_plain(name): each if _plain(name) == "env" else _lowered(each) for name, each in value.items()}


def _plain(name: str) -> str:
    return name.lower().replace("_", "")


def _bare(value: Any) -> Any:
    """Without what python-hcl2 8 adds: quotes round texts and labels, and names about where things stood."""
    if isinstance(value, dict):
        return {_bare(name): _bare(each) for name, each in value.items() if not name.startswith("__")}
    if isinstance(value, list):
        return [_bare(each) for each in value]
    is_quoted = isinstance(value, str) and len(value) > 1 and value[0] == value[-1] == '"'
    return value[1:-1] if is_quoted else value


def _listed(parent: Block, *names: str) -> Iterator[Block]:
    """The blocks of these names, each with its ``name``: in HCL that is the label."""
    for name in names:
        for block in parent.get(name) or ():
            labelled = len(block) == 1 and isinstance(next(iter(block.values())), dict) and "name" not in block
            if labelled and name in ("group", "task"):
                (label, content), *_ = block.items()
                yield {**content, "name": label}
            else:
                yield block


def _one(parent: Block, *names: str) -> Block:
    for name in names:
        found = parent.get(name)
        if isinstance(found, list):
            found = found[0] if found else None
        if found:
            return dict(found)
    return {}


def _group(block: Block) -> Group:
    restart = _restart(_one(block, "restartpolicy", "restart"), Restart())
    tasks = list(_listed(block, "tasks", "task"))
    checks = [*_checks(block, ""), *(check for task in tasks for check in _checks(task, str(task["name"])))]
    return Group(str(block["name"]), tuple(_task(task, restart) for task in tasks), tuple(checks))


def _task(block: Block, of_group: Restart) -> Task:
    env = {str(name): str(value) for name, value in _one(block, "env").items() if not str(name).startswith("__")}
    return Task(
        str(block["name"]),
        env,
        _restart(_one(block, "restartpolicy", "restart"), of_group),
        is_sidecar=bool(_one(block, "lifecycle").get("sidecar")),
        kill_timeout_s=_seconds(block.get("killtimeout"), _KILL_S),
    )


def _restart(block: Block, otherwise: Restart) -> Restart:
    return Restart(
        int(block.get("attempts", otherwise.attempts)),
        _seconds(block.get("interval"), otherwise.interval_s),
        _seconds(block.get("delay"), otherwise.delay_s),
        str(block.get("mode", otherwise.mode)),
    )


def _checks(parent: Block, task: str) -> Iterator[Check]:
    for service in _listed(parent, "services", "service"):
        for check in _listed(service, "checks", "check"):
            restart = _one(check, "checkrestart")
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
