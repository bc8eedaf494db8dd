"""``health-arbiter-exec --run-lock DIR ... -- command``: the command ``exec`` for machines without the sidecar."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from . import durations
from .execute import ExecOptions, execute

_TYPES: Final[Mapping[str, Callable[[str], object]]] = MappingProxyType(
    {
        **dict.fromkeys(("run_lock", "redis_file", "busy_file"), Path),
        **dict.fromkeys(("max_procs", "standbys"), int),
        "name": str,
        "lifetime_jitter": float,
        "busy_command": shlex.split,
    }
)


def main() -> int:
    """Run the command line and return the exit code of ``execute``. The options are the fields of ``ExecOptions``."""
    arguments, command = _split(sys.argv[1:])
    parser = argparse.ArgumentParser("health-arbiter-exec", usage="%(prog)s --run-lock DIR [options] -- command ...")
    for name, default in ExecOptions._field_defaults.items():
        flag = f"--{name.removesuffix('_s').replace('_', '-')}"
        if isinstance(default, bool):
            parser.add_argument(flag, dest=name, default=default, action=argparse.BooleanOptionalAction)
        else:
            parser.add_argument(flag, dest=name, default=default, type=_TYPES.get(name, _duration))
    options = parser.parse_args(arguments)
    if not command:
        parser.error("give the command behind --")
    return execute(ExecOptions(command, **vars(options)))


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:end], arguments[end + 1 :]


def _duration(text: str) -> float:
    try:
        return durations.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} {error}") from None
