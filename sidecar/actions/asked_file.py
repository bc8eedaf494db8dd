"""Remembers, over restarts of the sidecar, for which latch the action was asked, in a file beside the state file.

A second line says that the result is known: without it the sidecar ended during the action.
"""

from __future__ import annotations

import os
from enum import Enum, auto
from pathlib import Path
from typing import Final

from sidecar.core.types import Latch

_LIMIT: Final = 65_536
_ENDED: Final = "ended\n"


class ActionProgress(Enum):
    """Whether the action was asked for a latch, and whether its result is known."""

    NOT_ASKED = auto()
    WITHOUT_RESULT = auto()
    WITH_RESULT = auto()


class AskedFile:
    """Holds the latch for which the action was asked last. Its methods may block, and raise OSError or ValueError."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, latch: Latch) -> ActionProgress:
        """Whether the action was asked for this latch."""
        try:
            with self._path.open() as file:
                text = file.read(_LIMIT)
        except FileNotFoundError:
            return ActionProgress.NOT_ASKED
        if not text.startswith(_name(latch)):
            return ActionProgress.NOT_ASKED
        return ActionProgress.WITH_RESULT if text.endswith(_ENDED) else ActionProgress.WITHOUT_RESULT

    def note(self, latch: Latch, *, has_result: bool = False) -> None:
        """Write down that the action is asked for this latch, or that its result is known."""
        # The result is added: a kill in between must not leave an empty file, as if nothing had been asked.
        how = os.O_APPEND if has_result else os.O_CREAT | os.O_TRUNC
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(self._path, flags | how, 0o600), "w") as file:
            file.write(_ENDED if has_result else _name(latch))


def _name(latch: Latch) -> str:
    return f"{latch.claim_id or latch.lease} {latch.at}\n"
