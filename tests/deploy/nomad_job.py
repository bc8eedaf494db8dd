"""A job file as the tests need it: its group, its two tasks, and the environment of the arbiter."""

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

    @property
    def ports(self) -> dict[str, Block]:
        return labelled(one(self.group, "network"), "port")

    @property
    def check(self) -> Block:
        """The check of the arbiter in the app's task; empty when there is none."""
        services = (each for each in blocks(self.app, "service") if each.get("name") == "app-health")
        return one(next(services, {}), "check")

    @property
    def environ(self) -> dict[str, str]:
        """The environment of the arbiter, with samples for the values that Nomad and its templates fill in."""
        environ = {name: str(value).lower() if value in (True, False) else str(value) for name, value in self._env()}
        known = {**NOMAD, **{f"NOMAD_PORT_{label}": str(port.get("to")) for label, port in self.ports.items()}}
        return NOMAD | {
            name: re.sub(r"\$\{(NOMAD_\w+)\}", lambda found: known.get(found[1], found[0]), value)
            for name, value in environ.items()
        }

    def _env(self) -> list[tuple[str, Any]]:
        templates = (each["data"] for each in blocks(self.arbiter, "template") if each.get("env") is True)
        lines = re.findall(r"^\s*([A-Za-z_]\w*)=(.*)$", "\n".join(templates), re.MULTILINE)
        filled = [(name, re.sub(r"{{.*?}}", SECRET_SAMPLE, value)) for name, value in lines]
        return [*one(self.arbiter, "env").items(), *filled]

    @property
    def patience_s(self) -> float:
        """How long the check must fail before Nomad restarts the app (the arithmetic of its watcher)."""
        return seconds(self.check, "interval") * (int(one(self.check, "check_restart").get("limit", 0)) - 1)


def read(text: str) -> JobFile:
    """The job of a job file with one job and one group."""
    (job,) = labelled(plain(text), "job").values()
    (group,) = labelled(job, "group").values()
    tasks = labelled(group, "task")
    return JobFile(group, tasks["app"], tasks["arbiter"])


def plain(text: str) -> Block:
    """The content of a job file; quotes within a text have a backslash before them."""
    options = hcl2.SerializationOptions(
        with_comments=False, explicit_blocks=False, preserve_heredocs=False, strip_string_quotes=True
    )
    content: Block = hcl2.loads(text, serialization_options=options)
    return content


def blocks(parent: Block, name: str) -> list[Block]:
    """The blocks of that name, without labels, in order."""
    return list(parent.get(name, []))


def one(parent: Block, name: str) -> Block:
    """The first block of that name, or an empty one."""
    return next(iter(blocks(parent, name)), {})


def labelled(parent: Block, name: str) -> dict[str, Block]:
    """The blocks of that name by their label."""
    return {label: body for block in blocks(parent, name) for label, body in block.items()}


def seconds(block: Block, name: str) -> float:
    """A duration of the block, and 0 when it is not there."""
    return durations.parse(str(block.get(name, "0s")))
