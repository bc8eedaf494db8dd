"""What a gate that is shut says."""

from __future__ import annotations

from typing import NamedTuple


class Refusal(NamedTuple):
    """Why the answer is no: the machine's word, and the microseconds after which to ask again."""

    reason: str
    wait_us: int
