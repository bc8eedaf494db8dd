"""A job file as the rules need it: its group, its two tasks, and the environment of the arbiter."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import hcl2

from sidecar.runlock import durations

JOB_FILE: Final = Path(__file__).parents[2] / "nomad" / "app.nomad.hcl"
TASK_API_JOB_FILE: Final = JOB_FILE.parent / "app-task-api.nomad.hcl"
HAPROXY_JOB_FILE: Final = JOB_FILE.parent / "haproxy.nomad.hcl"

Block = dict[str, Any]

_HEREDOC = re.compile(r"<<-?(\w+)\n(.*)\n\s*\1", re.DOTALL)
_ASSIGNMENT = re.compile(r"^\s*([A-Za-z_]\w*)=(.*)$", re.MULTILINE)
_TEMPLATE_CALL = re.compile(r"{{.*?}}")
_RUNTIME_VARIABLE = re.compile(r"\$\{(NOMAD_\w+)\}")

NOMAD: Final = {
    "NOMAD_JOB_NAME": "app",
    "NOMAD_GROUP_NAME": "web",
    "NOMAD_NAMESPACE": "default",
    "NOMAD_ALLOC_ID": "5cfd2a7c-0a1b-4a0e-9a9d-3f7d8c1f9c11",
    "NOMAD_ALLOC_DIR": "/alloc",
    "NOMAD_SECRETS_DIR": "/secrets",
}
"""The variables that Nomad sets for a task."""

SECRET_SAMPLE: Final = "redis://:secret@redis.internal:6379/0"


@dataclass(frozen=True)
class JobFile:
    """The one group of the one job, with the tasks ``app`` and ``arbiter``."""

    group: Block
    app: Block
    arbiter: Block
    images: dict[str, str]
    update: Block

    @property
    def ports(self) -> dict[str, Block]:
        return labelled(one(self.group, "network"), "port")

    @property
    def check(self) -> Block:
        """The check of the arbiter in the app's task; empty when there is none."""
        return one(self._checked_service, "check")

    @property
    def _checked_service(self) -> Block:
        return next((each for each in blocks(self.app, "service") if each.get("name") == "app-health"), {})

    @property
    def environ(self) -> dict[str, str]:
        """The environment of the arbiter, with samples for the values that Nomad and its templates fill in."""
        environ = {**NOMAD, **{name: _text(value) for name, value in one(self.arbiter, "env").items()}}
        for template in blocks(self.arbiter, "template"):
            if template.get("env") is True:
                environ |= dict(assignments(str(template["data"])))
        ports = {f"NOMAD_PORT_{label}": str(port.get("to")) for label, port in self.ports.items()}
        known = {**NOMAD, **ports}
        return {
            name: _RUNTIME_VARIABLE.sub(lambda found: known.get(found[1], found[0]), value)
            for name, value in environ.items()
        }

    @property
    def patience_s(self) -> float:
        """How long the check must fail before Nomad restarts the app (the arithmetic of its watcher)."""
        return seconds(self.check, "interval") * (int(one(self.check, "check_restart").get("limit", 0)) - 1)


def read(text: str) -> JobFile:
    """Return the job of a job file with one job and one group."""
    content = plain(text)
    job = _only(labelled(content, "job"))
    group = _only(labelled(job, "group"))
    tasks = labelled(group, "task")
    images = {name: str(each.get("default", "")) for name, each in labelled(content, "variable").items()}
    return JobFile(group, tasks.get("app", {}), tasks.get("arbiter", {}), images, one(job, "update"))


def plain(text: str) -> Block:
    """Return the content of a job file."""
    content: Block = _plain(hcl2.loads(text))
    return content


def blocks(parent: Block, name: str) -> list[Block]:
    """Return the blocks of that name, without labels, in order."""
    return list(parent.get(name, []))


def one(parent: Block, name: str) -> Block:
    """Return the first block of that name, or an empty one."""
    return next(iter(blocks(parent, name)), {})


def labelled(parent: Block, name: str) -> dict[str, Block]:
    """Return the blocks of that name by their label."""
    return {label: body for block in blocks(parent, name) for label, body in block.items()}


def seconds(block: Block, name: str) -> float:
    """Return a duration of the block, and 0 when it is not there."""
    return durations.parse(str(block.get(name, "0s")))


def assignments(data: str) -> list[tuple[str, str]]:
    """Return the variables that a template for the environment sets, each lookup in it replaced by a sample."""
    return [(name, _TEMPLATE_CALL.sub(SECRET_SAMPLE, value)) for name, value in _ASSIGNMENT.findall(data)]


def _plain(value: Any) -> Any:
    """The value without the quotes and position keys of python-hcl2 8."""
    if isinstance(value, dict):
        return {_plain(key): _plain(each) for key, each in value.items() if not key.startswith("__")}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return _unquoted(value) if isinstance(value, str) else value


def _unquoted(text: str) -> str:
    bare = text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
    heredoc = _HEREDOC.fullmatch(bare)
    return heredoc.group(2) if heredoc else bare


def _only(bodies: dict[str, Block]) -> Block:
    (body,) = bodies.values()
    return body


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
