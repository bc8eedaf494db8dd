"""Remembers, over restarts of the sidecar, for which latch the action was asked, in a file beside the state file.

A second line says what became of it: without that line the sidecar ended during the action.
"""

from __future__ import annotations

import os
from enum import Enum, auto
from pathlib import Path
from typing import Final

from sidecar.core.types import Latch

_LIMIT: Final = 65_536


class ActionProgress(Enum):
    """What became of the action for a latch."""

    NOT_ASKED = auto()
    WITHOUT_RESULT = auto()  # it may have been carried out
    NOT_CARRIED_OUT = auto()  # surely
    WITH_RESULT = auto()


_WORDS: Final = {ActionProgress.NOT_CARRIED_OUT: "unread\n", ActionProgress.WITH_RESULT: "ended\n"}


class AskedFile:
    """Holds the latch for which the action was asked last. Its methods may block, and raise OSError or ValueError."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, latch: Latch) -> ActionProgress:
        """What became of the action for this latch."""
        try:
            with self._path.open() as file:
                text = file.read(_LIMIT)
        except FileNotFoundError:
            return ActionProgress.NOT_ASKED
        if not text.startswith(_name(latch)):
            return ActionProgress.NOT_ASKED
        word = text.removeprefix(_name(latch))
        return next((each for each in _WORDS if _WORDS[each] == word), ActionProgress.WITHOUT_RESULT)

    def note(self, latch: Latch, progress: ActionProgress) -> None:
        """Write down that the action is asked for this latch, or what became of it."""
        # What became of it is added: a kill in between must not leave an empty file, as if nothing had been asked.
        word = _WORDS.get(progress, "")
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        how = os.O_APPEND if word else os.O_CREAT | os.O_TRUNC
        with os.fdopen(os.open(self._path, flags | how, 0o600), "w") as file:
            file.write(word or _name(latch))


def _name(latch: Latch) -> str:
    return f"{latch.claim_id or latch.lease} {latch.at}\n"
