"""A sorted set like that of Redis, for the times in the store in memory."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from math import inf


class SortedSet:
    """Names with a score each, ordered by score and then by name. Bounds are closed."""

    def __init__(self) -> None:
        self._scores: dict[str, int] = {}
        self._order: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, name: str) -> bool:
        return name in self._scores

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return ((name, self._scores[name]) for _, name in self._order)

    def put(self, name: str, score: int) -> None:
        """Add the name, or give it another score."""
        if self._scores.get(name) == score:
            return
        self.remove(name)
        self._scores[name] = score
        insort(self._order, (score, name))

    def remove(self, name: str) -> bool:
        """Remove the name; return whether it was there."""
        score = self._scores.pop(name, None)
        if score is None:
            return False
        del self._order[bisect_left(self._order, (score, name))]
        return True

    def score(self, name: str) -> int | None:
        """The score of the name, None if it is not there."""
        return self._scores.get(name)

    def at(self, place: int) -> tuple[str, int] | None:
        """The name and score at this place, -1 for the last; None beyond the end."""
        if not -len(self) <= place < len(self):
            return None
        name = self._order[place][1]
        return name, self._scores[name]

    def count(self, least: float, most: float = inf) -> int:
        """The number of scores within the bounds."""
        first, last = self._span(least, most)
        return last - first

    def within(self, least: float, most: float = inf, limit: int | None = None) -> dict[str, int]:
        """Names and scores within the bounds, at most ``limit`` of them."""
        first, last = self._span(least, most)
        names = [name for _, name in self._order[first:last][:limit]]
        return {name: self._scores[name] for name in names}

    def remove_within(self, least: float, most: float = inf) -> None:
        """Remove the names whose score is within the bounds."""
        for name in self.within(least, most):
            self.remove(name)

    def _span(self, least: float, most: float) -> tuple[int, int]:
        first = bisect_left(self._order, (least, ""))
        after = bisect_left(self._order, (most, "")) if most == inf else bisect_left(self._order, (most + 1, ""))
        return first, max(first, after)
