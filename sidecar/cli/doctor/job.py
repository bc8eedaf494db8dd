"""A job of Nomad in JSON, as ``nomad job run -output`` and the API write it: blocks with Nomad's own names.

What the job leaves out is null or missing; then Nomad's default counts.
(https://developer.hashicorp.com/nomad/api-docs/json-jobs)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

import click

from sidecar.cli.terminal import cause

NS_PER_S: Final = 1_000_000_000
SIZE_LIMIT: Final = 4 << 20
STDIN: Final = "-"
_NO_JOB: Final = "--job: is not a job of Nomad in JSON: give the output of nomad job run -output FILE"


class JobError(click.UsageError):
    """The file cannot be read as a job; the message says why."""


class Block:
    """A block of the job. Each method raises JobError for a value that Nomad does not write there."""

    def __init__(self, value: object) -> None:
        if not isinstance(value, Mapping):
            raise JobError(_NO_JOB)
        self._fields: Mapping[str, Any] = value

    def __iter__(self) -> Iterator[str]:
        """The names of its fields."""
        return iter(self._fields)

    def text(self, name: str, otherwise: str = "") -> str:
        """The text of this name."""
        return str(self._fields.get(name) or otherwise)

    def number(self, name: str, otherwise: int = 0) -> int:
        """The whole number of this name."""
        value = self._fields.get(name)
        try:
            return otherwise if value is None else int(value)
        except (TypeError, ValueError):
            raise JobError(_NO_JOB) from None

    def seconds(self, name: str, otherwise: float = 0.0) -> float:
        """The duration of this name, which Nomad writes in nanoseconds."""
        return self.number(name, round(otherwise * NS_PER_S)) / NS_PER_S

    def flag(self, name: str) -> bool | None:
        """The truth of this name, None if it is left out."""
        value = self._fields.get(name)
        return None if value is None else bool(value)

    def block(self, name: str) -> Self:
        """The block of this name, empty if there is none."""
        return type(self)(self._fields.get(name) or {})

    def blocks(self, name: str) -> list[Self]:
        """The blocks of a list."""
        return [type(self)(value) for value in self.values(name)]

    def values(self, name: str) -> list[Any]:
        """The values of a list."""
        found = self._fields.get(name) or []
        if not isinstance(found, list):
            raise JobError(_NO_JOB)
        return found


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
    whole = Block(value)
    job = whole.block("Job") if "Job" in whole else whole
    if not job.blocks("TaskGroups"):
        raise JobError(_NO_JOB)
    return job
