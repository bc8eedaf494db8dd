"""The answer of a gate that refuses."""

from __future__ import annotations

from typing import NamedTuple


class GateRefusal(NamedTuple):
    """Why a gate refuses: a word of ``reasons.REFUSALS``, and the microseconds after which to ask again."""

    reason: str
    wait_us: int
