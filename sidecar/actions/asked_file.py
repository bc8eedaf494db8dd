"""Remembers, over restarts of the sidecar, for which latch the action was asked, in a file beside the state file."""

from __future__ import annotations

import os
from pathlib import Path

from sidecar.core.types import Latch


class AskedFile:
    """Holds the latch for which the action was asked last. Its methods may block, and raise OSError or ValueError."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def has(self, latch: Latch) -> bool:
        """Whether the action was asked for this latch."""
        try:
            return self._path.read_text() == _name(latch)
        except FileNotFoundError:
            return False

    def note(self, latch: Latch) -> None:
        """Write down that the action is asked for this latch."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(self._path, flags, 0o600), "w") as file:
            file.write(_name(latch))


def _name(latch: Latch) -> str:
    return f"{latch.claim_id or latch.lease} {latch.at}\n"
