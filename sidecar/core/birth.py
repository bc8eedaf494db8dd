"""The birth mark of a bucket, by which sidecars and bucket find out together that memory was lost.

The mark is when the bucket was born, and how many grants it gave. A sidecar that knows of another birth, or of more
grants than the bucket does, shows a loss. Times are microseconds of the bucket's clock.
"""

from __future__ import annotations

from typing import NamedTuple


class Mark(NamedTuple):
    """When a bucket was born, and its grants so far. Zeros: nothing is known of it."""

    born_us: int = 0
    grants: int = 0


class Birth:
    """What one bucket knows of its own beginning."""

    def __init__(self) -> None:
        self.mark = Mark()
        self.losses = 0
        self._lost_us = 0
        self._gathering_us = 0

    def recognise(self, known: Mark, now_us: int) -> None:
        """Compare the caller's mark with ours, and be born if need be."""
        born_us, grants = self.mark
        lost_us = 0
        if not born_us:
            born_us = now_us
            lost_us = now_us if known.born_us else 0
        elif known.born_us and known.born_us < born_us:
            lost_us = born_us
        elif known.born_us > born_us or known.grants > grants:
            lost_us = now_us
        if lost_us > self._lost_us:
            self._lost_us = lost_us
            self.losses += 1
        self.mark = Mark(born_us, max(grants, known.grants))

    def granted(self) -> None:
        """Count one more grant."""
        self.mark = Mark(self.mark.born_us, self.mark.grants + 1)

    def gathers(self, now_us: int) -> None:
        """Note that half of the fleet fell silent at once: the server was away, or its clock leapt."""
        self._gathering_us = now_us

    def lost_wait_us(self, now_us: int, window_us: int) -> int:
        """Microseconds until a window has passed since the last loss; 0 once it has."""
        return max(0, self._lost_us + window_us + 1 - now_us) if self._lost_us else 0

    def newborn_wait_us(self, now_us: int, expiry_us: int) -> int:
        """Microseconds until the fleet could be heard (again): half as long as a silent member stays one.

        Until then nobody knows whether memory was lost, nor how many others there are and want.
        """
        return max(0, max(self.mark.born_us, self._gathering_us) + expiry_us // 2 - now_us)
