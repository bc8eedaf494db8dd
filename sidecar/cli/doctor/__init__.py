"""``doctor``: findings, each with how bad it is, what was looked at, and a sentence with what to do."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple


class FindingLevel(StrEnum):
    """How bad it is: culls work, may not do what they should, or cannot work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


class Finding(NamedTuple):
    """One line of the answer."""

    level: FindingLevel
    what: str
    sentence: str


ok: Final = partial(Finding, FindingLevel.OK)
warn: Final = partial(Finding, FindingLevel.WARN)
fail: Final = partial(Finding, FindingLevel.FAIL)
