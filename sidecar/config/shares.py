"""Numbers that may be a part of the fleet: how ``10`` and ``12.5%`` are read and written."""

from __future__ import annotations

import re
from typing import Final

_SHARE: Final = re.compile(r"(?P<count>[0-9]+)|(?P<percent>[0-9]{1,3}(?:[.][0-9])?)[ ]?%")
_FULL: Final = 1000
_DIGITS: Final = 6


def parse(value: object) -> tuple[int, bool]:
    """Read a share: a count and False, or thousandths of the fleet and True.

    Raises ValueError for what is neither a whole number nor a percentage up to 100 % with one decimal at most.
    """
    match = _SHARE.fullmatch(str(value).strip())
    if match is None:
        raise ValueError("must be a whole number, or a percentage such as 5% or 12.5%")
    if match["count"]:
        if len(match["count"]) > _DIGITS:
            raise ValueError("must be at most 999999")
        return int(match["count"]), False
    thousandths = round(float(match["percent"]) * 10)
    if thousandths > _FULL:
        raise ValueError("must be at most 100%")
    return thousandths, True


def write(amount: int, *, is_part: bool) -> str:
    """Write a share as a user would."""
    return f"{amount / 10:g}%" if is_part else str(amount)


def checked(value: object) -> str:
    """Return the share as ``write`` writes it; ValueError as in ``parse``."""
    amount, is_part = parse(value)
    return write(amount, is_part=is_part)
