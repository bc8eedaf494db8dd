"""What is known of a fleet's past: errors and requests of each container by steps of time, and when it was there.

The readers fill it, the player plays it. It knows neither files nor servers. Whatever a reader could not use is in
``notices``, with the first place and the count; nothing takes its place.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final, NamedTuple

from sidecar.runlock import durations

BLOCK: Final = 1024
"""Steps in one block of counts."""

MOST_BLOCKS: Final = 80_000
"""Maximum number of blocks in a past: 330 MiB."""

MOST_CONTAINERS: Final = 5_000
MOST_KINDS: Final = 64
"""Maximum number of kinds of errors of one container; further kinds count as ``other``."""

OTHER: Final = "other"
ABSENT_S: Final = 600.0
"""A container without data for longer than this was not there; for a shorter time only the data is missing."""

LARGEST: Final = 2**32 - 1
"""The largest count of one step."""

LONGEST_S: Final = 400 * 86_400.0
MOST_RUNS: Final = 5_000
"""Maximum number of runs of steps with data of one container."""

_MERGED_EVERY: Final = 1000


class PastError(Exception):
    """The past cannot be read; the text is one sentence with the place."""


class Notices:
    """What was seen that a person has to know, by sentence: the number of times, and the first place."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[int, str]] = {}

    def add(self, sentence: str, place: str, count: int = 1) -> None:
        """Something was seen ``count`` times, first at this place. The sentences are few, the places may be many."""
        total, first = self._rows.get(sentence, (0, place))
        self._rows[sentence] = (total + count, first)

    def lines(self) -> list[str]:
        """One line for each sentence."""
        return [f"{sentence}: {count:,}, the first: {first}" for sentence, (count, first) in self._rows.items()]


class Space:
    """The blocks that a past may still take."""

    def __init__(self, blocks: int = MOST_BLOCKS) -> None:
        self._left = blocks

    def take(self) -> array[int]:
        """A block of zeros. Raises PastError if there is none left."""
        self._left -= 1
        if self._left < 0:
            raise PastError("the past does not fit into memory: take a shorter time or a longer --step")
        return array("I", bytes(4 * BLOCK))


class StepCounts:
    """Counts by step. Steps far from any count take no memory."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self.blocks: dict[int, array[int]] = {}

    def add(self, step: int, count: int) -> None:
        """Add to one step; a step holds at most ``LARGEST``."""
        block = self._block(step // BLOCK)
        block[step % BLOCK] = min(LARGEST, block[step % BLOCK] + count)

    def add_run(self, first: int, counts: array[int]) -> None:
        """Add to the steps from ``first`` on."""
        at = 0
        while at < len(counts):
            number, place = divmod(first + at, BLOCK)
            run = counts[at : at + BLOCK - place]
            if any(run):
                is_new = number not in self.blocks
                block = self._block(number)
                end = place + len(run)
                block[place:end] = run if is_new else array("I", map(_sum, block[place:end], run))
            at += len(run)

    def __getitem__(self, step: int) -> int:
        block = self.blocks.get(step // BLOCK)
        return block[step % BLOCK] if block else 0

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """The steps that have a count, ascending, with their counts."""
        for number in sorted(self.blocks):
            yield from self.of_block(number)

    def of_block(self, number: int) -> Iterator[tuple[int, int]]:
        """The same for one block."""
        block, first = self.blocks.get(number), number * BLOCK
        if block:
            yield from ((first + place, count) for place, count in enumerate(block) if count)

    @property
    def total(self) -> int:
        """The sum of all counts."""
        return sum(map(sum, self.blocks.values()))

    def _block(self, number: int) -> array[int]:
        block = self.blocks.get(number)
        if block is None:
            block = self.blocks[number] = self._space.take()
        return block


def _sum(one: int, other: int) -> int:
    return min(LARGEST, one + other)


class PastLife(NamedTuple):
    """One incarnation, from its first to its last step; ``is_restart``: in place, known by its counters."""

    first: int
    last: int
    is_restart: bool = False


@dataclass
class PastContainer:
    """One container: its errors by kind, its requests, and when it was there.

    ``seen``: runs of steps with data, as (first, last); fewer than ``silence`` steps without data do not end one.
    ``restarts``: the first steps of incarnations that its counters showed.
    """

    instance: str
    requests: StepCounts
    errors: dict[str, StepCounts] = field(default_factory=dict)
    seen: list[tuple[int, int]] = field(default_factory=list)
    restarts: set[int] = field(default_factory=set)
    silence: int = 0

    def see(self, first: int, last: int) -> None:
        """There is data from step ``first`` to ``last``."""
        if self.seen and self.seen[-1][0] <= first <= self.seen[-1][1] + 1 + self.silence:
            self.seen[-1] = (self.seen[-1][0], max(last, self.seen[-1][1]))
            return
        self.seen.append((first, last))
        if len(self.seen) % _MERGED_EVERY == 0:
            self.merge()

    def merge(self) -> None:
        """Join the runs of steps that touch, and order them. Raises PastError if there are too many."""
        self.seen = merged(self.seen, self.silence)
        if len(self.seen) > MOST_RUNS:
            raise PastError(f"{self.instance}: more than {MOST_RUNS:,} gaps: set --step to the distance of its points")

    def lives(self, absent: int, no_data: Sequence[tuple[int, int]] = ()) -> list[PastLife]:
        """The incarnations, ascending. ``seen`` has to be merged.

        After more than ``absent`` steps without data the container was away. ``no_data``: steps without data of any
        container, which say nothing about this one.
        """
        runs: list[list[int]] = []
        for first, last in self.seen:
            if runs and _overlap(runs[-1][1] + 1, first - 1, no_data) >= first - 1 - runs[-1][1] - absent:
                runs[-1][1] = last
            else:
                runs.append([first, last])
        lives = []
        for first, last in runs:
            begins = [first, *sorted(one for one in self.restarts if first < one <= last)]
            ends = [*(one - 1 for one in begins[1:]), last]
            lives += [PastLife(one, end, one != first) for one, end in zip(begins, ends, strict=True)]
        return lives


def merged(runs: Iterable[tuple[int, int]], silence: int = 0) -> list[tuple[int, int]]:
    """These runs of steps in order; those that overlap, touch or have at most ``silence`` steps between are one."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(runs):
        if found and first <= found[-1][1] + 1 + silence:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found


def holes(runs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The steps between these runs, which are merged."""
    return [(one[1] + 1, other[0] - 1) for one, other in pairwise(runs)]


def _overlap(first: int, last: int, runs: Sequence[tuple[int, int]]) -> int:
    """The number of steps from ``first`` to ``last`` that are in one of the runs."""
    return sum(max(0, min(last, end) - max(first, begin) + 1) for begin, end in runs)


@dataclass
class Past:
    """The past of a fleet in steps of ``step_s`` seconds.

    Step ``n`` has what was counted in the ``step_s`` seconds before the Unix time ``offset_s + n * step_s``.
    ``source``: where it comes from, in a few words. ``has_requests``: requests are known, not only errors.
    ``is_sampled``: there is data of each step, so that a step without any is a gap; otherwise it only was quiet.
    ``unknowns``: sentences about what this source cannot tell. Known after ``finish``: ``seen``, runs of steps with
    data of any container, and ``no_data``, the steps between them. ``ends``: the first and the last Unix time of each
    file, with their places, if the reader knows them.
    """

    source: str
    step_s: float
    offset_s: float = 0.0
    has_requests: bool = False
    is_sampled: bool = True
    unknowns: list[str] = field(default_factory=list)
    notices: Notices = field(default_factory=Notices)
    space: Space = field(default_factory=Space)
    containers: dict[str, PastContainer] = field(default_factory=dict)
    seen: list[tuple[int, int]] = field(default_factory=list)
    no_data: list[tuple[int, int]] = field(default_factory=list)
    ends: list[tuple[float, str]] = field(default_factory=list)

    def container(self, instance: str) -> PastContainer:
        """The container of this name. Raises PastError if there are too many."""
        found = self.containers.get(instance)
        if found is None:
            if len(self.containers) >= MOST_CONTAINERS:
                raise PastError(f"{self.source}: more than {MOST_CONTAINERS:,} instances, such as {instance!r}")
            found = self.containers[instance] = PastContainer(instance, StepCounts(self.space))
            found.silence = 0 if self.is_sampled else self.absent_steps
        return found

    def errors(self, container: PastContainer, kind: str) -> StepCounts:
        """The errors of this kind."""
        if kind not in container.errors and len(container.errors) >= MOST_KINDS:
            kind = OTHER
        return container.errors.setdefault(kind, StepCounts(self.space))

    @property
    def absent_steps(self) -> int:
        """After so many steps without data a container was not there."""
        return max(1, round(ABSENT_S / self.step_s))

    def finish(self) -> None:
        """Order what was seen, and note the holes. Raises PastError if nothing was seen, or too long a time."""
        for one in self.containers.values():
            one.merge()
        self.seen = merged(run for one in self.containers.values() for run in one.seen)
        if not self.seen:
            raise PastError(f"{self.source}: there is no data of any instance")
        first, last = self.span
        if (last - first) * self.step_s > LONGEST_S:
            places = [f" ({place})" for _, place in (min(self.ends), max(self.ends))] if self.ends else ["", ""]
            span = f"{self.clock(first)}{places[0]} to {self.clock(last)}{places[1]}"
            raise PastError(
                f"{self.source}: has times from {span}, more than {durations.write(LONGEST_S)}: set --since"
            )
        if self.is_sampled:
            self._check_step()
        if not self.is_sampled:
            self._join_ends()
        self.no_data = holes(self.seen)
        for first, last in self.no_data:
            place = f"{self.clock(first - 1)} to {self.clock(last + 1)}"
            self.notices.add("times without data of any instance; nothing is played for them", place)
        for one in self.containers.values():
            for first, last in holes(one.seen):
                if _overlap(first, last, self.no_data) < last - first + 1:
                    self._note_hole(one.instance, first, last)

    def _check_step(self) -> None:
        """Raise PastError if most steps have no data: then their rises have no time, and none would count."""
        runs = [one.seen for one in self.containers.values()]
        missing = sum(
            last - first + 1 for seen in runs for first, last in holes(seen) if last - first < self.absent_steps
        )
        if missing > sum(last - first + 1 for seen in runs for first, last in seen):
            step = durations.write(self.step_s)
            raise PastError(
                f"{self.source}: most steps of {step} have no data: set --step to the distance of its points"
            )

    def _join_ends(self) -> None:
        """Who was heard soon after the beginning, or shortly before the end, was there then too."""
        first, last = self.span
        for one in self.containers.values():
            begin, until = one.seen[0][0], one.seen[-1][1]
            if begin - first <= self.absent_steps:
                one.see(first, begin)
            if last - until <= self.absent_steps:
                one.see(until, last)
            one.merge()

    def _note_hole(self, instance: str, first: int, last: int) -> None:
        place = f"{instance}, {self.clock(first - 1)} to {self.clock(last + 1)}"
        if last - first + 1 > self.absent_steps:
            sentence = f"times of more than {durations.write(ABSENT_S)} in which an instance was away"
        else:
            sentence = "gaps in the data of an instance, in which it is played without errors"
        self.notices.add(sentence, place)

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last step that any container was seen in."""
        return self.seen[0][0], self.seen[-1][1]

    def lives(self, container: PastContainer) -> list[PastLife]:
        """The incarnations of a container, ascending."""
        return container.lives(self.absent_steps, self.no_data)

    @property
    def total_errors(self) -> int:
        """All errors of all containers."""
        return sum(counts.total for one in self.containers.values() for counts in one.errors.values())

    def step_of(self, unix_s: float) -> int:
        """The step that a Unix time belongs to."""
        return round((unix_s - self.offset_s) / self.step_s)

    def at(self, step: float) -> float:
        """Unix time of a step."""
        return self.offset_s + step * self.step_s

    def clock(self, step: float) -> str:
        """The time of a step, for a person."""
        return clock(self.at(step))


def clock(unix_s: float) -> str:
    """``2026-11-22 10:00:15Z``; the number itself if it is no time of these centuries."""
    try:
        return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M:%S}Z"
    except (OverflowError, ValueError, OSError):
        return f"second {unix_s:g}"
