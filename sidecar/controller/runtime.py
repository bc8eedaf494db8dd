"""What each part of the controller takes of the process that runs it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple


class Runtime(NamedTuple):
    """Two clocks, chance, and where exceptions go. No exception of a part reaches its caller."""

    clock: Callable[[], float]  # monotonic seconds
    wall: Callable[[], float]  # Unix seconds
    rng: Random
    on_failure: Callable[[Exception], None]  # it may not block
