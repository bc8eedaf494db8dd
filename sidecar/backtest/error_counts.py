"""The errors of a fleet's past, by container and quarter of the error window.

The readers fill it, and ``limits`` judges it. Its memory is bounded.
"""

from __future__ import annotations

import gzip
import time
import zlib
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Final, cast

PARTS: Final = 4
"""Parts of a window: it moves by one of them."""

MOST_CONTAINERS: Final = 5_000
MOST_PARTS: Final = 2_000_000
"""Maximum number of parts with errors, of all containers: about 200 MiB."""

_EARLIEST_S: Final = 946_684_800.0
"""The year 2000."""

_LATER_S: Final = 86_400.0
"""Clocks and zones may be wrong by a day."""

_MILLISECONDS: Final = 1e11
"""A number from here on is a time in milliseconds: in seconds it would be the year 5138."""

_GZIP: Final = b"\x1f\x8b"


class PastError(Exception):
    """The past cannot be read; the text is one sentence that begins with the place."""


class PastContainer:
    """A container: its errors by part, and the first and the last part in which it was there."""

    def __init__(self, part: int) -> None:
        self.errors = Counter[int]()
        self.first = self.last = part

    def windows(self) -> Iterator[tuple[int, int]]:
        """The errors of the window that ends with each part in which there were any, ascending."""
        recent: deque[tuple[int, int]] = deque()
        total = 0
        for part, count in sorted(self.errors.items()):
            recent.append((part, count))
            total += count
            while recent[0][0] <= part - PARTS:
                total -= recent.popleft()[1]
            yield part, total


class ErrorCounts:
    """The errors of all containers since a Unix time. ``source``: a few words for people."""

    def __init__(self, source: str, window_s: float, since_s: float = 0.0) -> None:
        self.source = source
        self.window_s = window_s
        self.since_s = since_s
        self.containers: dict[str, PastContainer] = {}
        self.notes: Counter[str] = Counter()
        """What a person has to know of the data, with the number of times."""
        self._part_s = window_s / PARTS
        self._parts = 0

    def add(self, instance: str, at_s: float, errors: int) -> None:
        """Count errors of a container at a Unix time; 0: it was there. Raises PastError if there are too many."""
        if at_s < self.since_s:
            return
        part = int(at_s // self._part_s)
        container = self.containers.get(instance)
        if container is None:
            if len(self.containers) >= MOST_CONTAINERS:
                raise PastError(f"{self.source}: more than {MOST_CONTAINERS:,} containers, such as {instance!r}")
            container = self.containers[instance] = PastContainer(part)
        container.first, container.last = min(container.first, part), max(container.last, part)
        if errors:
            self._parts += part not in container.errors
            container.errors[part] += errors
            if self._parts > MOST_PARTS:
                raise PastError(f"{self.source}: does not fit into memory: set a later --since or a longer --window")

    def at(self, part: int) -> float:
        """Unix time at which a part begins."""
        return part * self._part_s

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last part in which any container was there."""
        found = self.containers.values()
        return min(one.first for one in found), max(one.last for one in found)


@lru_cache(maxsize=4096)  # many lines of a log have the same time
def unix_s(text: str) -> float:
    """Unix time from seconds, milliseconds, or text as in ISO 8601, without a zone in UTC. Raises ValueError."""
    try:
        at_s = float(text)
    except ValueError:
        moment = datetime.fromisoformat(text)
        at_s = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    at_s = at_s / 1000 if at_s > _MILLISECONDS else at_s
    if not _EARLIEST_S <= at_s <= time.time() + _LATER_S:
        raise ValueError(f"{text[:40]!r} is before the year 2000, or after tomorrow")
    return at_s


def clock(at_s: float) -> str:
    """``2026-11-22 10:00:15Z``."""
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%S}Z"


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A file of the operator, plain or with gzip, also a pipe. Raises PastError also while it is being read."""
    try:
        with path.open("rb") as raw:
            is_gzip = raw.peek(len(_GZIP)).startswith(_GZIP)
            yield cast("BinaryIO", gzip.GzipFile(fileobj=raw)) if is_gzip else raw
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise PastError(f"{path}: the gzip data is damaged or cut off: {str(error).lower()}") from None
    except OSError as error:
        raise PastError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from None
