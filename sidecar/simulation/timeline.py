"""The course of a run, for pictures: errors, weight and state of each container.

It is bounded, however long the run is: when the bins are full, each two of them become one. Errors are counted in at
most a minute. A bin that is longer has the minute with most of them, so that a short peak is not lost in a long run.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

MOST_BINS: Final = 1440
FIRST_BIN_S: Final = 7.5
"""Length of a bin at first. A day has bins of a minute then."""

COUNT_S: Final = 60.0
"""The longest time in which errors are counted together."""

MOST_MOVES: Final = 1000
"""Maximum number of states of one place that are kept; the later ones are left out."""

FULL: Final = 100
_UNSET: Final = 255


class Timeline:
    """What happens in each place, in bins of ``bin_s`` seconds. ``end_s``: the end of the run."""

    def __init__(self) -> None:
        self.bin_s = FIRST_BIN_S
        self.end_s = 0.0
        self._errors: dict[int, array[int]] = {}
        self._minutes: dict[int, tuple[int, int]] = {}
        self._lowest: dict[int, array[int]] = {}
        self._latest: dict[int, array[int]] = {}
        self._states: dict[int, list[tuple[float, str]]] = {}

    def reported(self, place: int, at_s: float, errors: int) -> None:
        """A container had errors."""
        number = self._bin(at_s)
        row = self._errors.get(place)
        if row is None:
            row = self._errors[place] = array("I", bytes(4 * MOST_BINS))
        if self.bin_s <= COUNT_S:
            row[number] += errors
            return
        minute, counted = self._minutes.get(place, (-1, 0))
        now = int(at_s / COUNT_S)
        counted = errors + (counted if minute == now else 0)
        self._minutes[place] = (now, counted)
        row[number] = max(row[number], counted)

    def weighed(self, place: int, at_s: float, percent: float) -> None:
        """The weight of a container has changed; 0: it is out of the balancer."""
        number = self._bin(at_s)
        if place not in self._lowest:
            self._lowest[place], self._latest[place] = (array("B", [_UNSET]) * MOST_BINS for _ in range(2))
        level = round(percent)
        self._lowest[place][number] = min(self._lowest[place][number], level)
        self._latest[place][number] = level

    def moved(self, place: int, at_s: float, state: str) -> None:
        """A container has another state."""
        states = self._states.setdefault(place, [])
        if len(states) < MOST_MOVES:
            states.append((at_s, state))

    # -- for the page -----------------------------------------------------------------------------------------------

    def containers(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """The containers to which anything happened, as JSON values."""
        places = sorted({*self._errors, *self._lowest, *self._states})
        return [
            {
                "container": place,
                "name": names[place] if place < len(names) else f"container {place}",
                "errors": [[number, errors] for number, errors in enumerate(self._errors.get(place, ())) if errors],
                "weight": [[0.0, FULL], *self._weights(place)],
                "state": [[0.0, "up"], *([round(at_s, 1), state] for at_s, state in self._states.get(place, ()))],
            }
            for place in places
        ]

    def _weights(self, place: int) -> Iterator[list[float]]:
        """The times at which the lowest weight of a bin is another one than that of the bin before."""
        level = shown = FULL
        for number, (lowest, latest) in enumerate(
            zip(self._lowest.get(place, ()), self._latest.get(place, ()), strict=True)
        ):
            now = min(level, lowest)
            level = level if latest == _UNSET else latest
            if now != shown:
                shown = now
                yield [number * self.bin_s, now]

    @property
    def bins(self) -> int:
        """The number of bins up to the end."""
        return max(1, min(MOST_BINS, -int(-self.end_s // self.bin_s)))

    # -- bins -------------------------------------------------------------------------------------------------------

    def _bin(self, at_s: float) -> int:
        while at_s >= MOST_BINS * self.bin_s:
            self._merge()
        return int(at_s / self.bin_s)

    def _merge(self) -> None:
        """Make one bin of each two."""
        for place, row in self._errors.items():
            self._errors[place] = _halved(row, sum if self.bin_s < COUNT_S else max, 0)
        for place, row in self._lowest.items():
            self._lowest[place] = _halved(row, min, _UNSET)
        for place, row in self._latest.items():
            self._latest[place] = _halved(row, lambda two: two[0] if two[1] == _UNSET else two[1], _UNSET)
        self.bin_s *= 2


def _halved(row: array[int], join: Any, empty: int) -> array[int]:
    """One value of each two, and as many empty ones behind them."""
    joined = [join(row[number : number + 2]) for number in range(0, MOST_BINS, 2)]
    return array(row.typecode, [*joined, *[empty] * (MOST_BINS // 2)])


def tokens(grants: Sequence[float], window_s: float) -> list[list[float]]:
    """The number of tokens that were granted in the window that ends at each time, as steps; ``grants`` ascending."""
    changes = sorted([(at_s, 1) for at_s in grants] + [(at_s + window_s, -1) for at_s in grants])
    steps, used = [[0.0, 0.0]], 0
    for at_s, change in changes:
        used += change
        steps.append([round(at_s, 1), used])
    return [one for one, after in pairwise([*steps, [float("inf"), 0]]) if one[0] != after[0]]
