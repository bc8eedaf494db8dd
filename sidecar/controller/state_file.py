"""Reads the state file of a container, for ``journal``."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

SIZE_LIMIT: Final = 65_536


def path_of(directory: str | Path, app: str) -> Path:
    """The path of this app's file in the state directory."""
    name = "".join(char if char.isalnum() or char in "-." else "_" for char in app)
    return Path(directory, f"health-arbiter-{name}.json")


def read(path: Path) -> bytes | None:
    """The content, None if there is no file. Raises OSError, and ValueError if it is not a regular file."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError(f"{path} is not a regular file")
        return file.read(SIZE_LIMIT)
