"""The store in memory, for a fleet of which most members sleep: they count as members that beat, until they wake up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from sidecar.core.fleet import episode
from sidecar.core.fleet.decide import SEVERAL_EVERY_US
from sidecar.core.fleet.raw import BeatReply, Raw
from sidecar.core.fleet.records import Cull, FleetState, Slot
from sidecar.core.fleet.terms import Terms
from sidecar.core.types import Beat, Presence
from sidecar.store.memory import MemoryStore
from sidecar.store.protocol import Changes

_PART: Final = 3
"""Sleeping members beat this many times within an expiry; no answer of the store depends on when."""


class AnswerMark(NamedTuple):
    """Two answers to beats of an instance say the same, but for medians, tokens and time, if their marks are equal."""

    revision: int
    alive: int
    causes: tuple[tuple[str, int], ...]
    row: str


class FleetStore(MemoryStore):
    """``asleep``: the instances that sleep, each after a beat without errors.

    ``on_commit`` is called after each commit. ``on_unrest`` is called when the fleet's median is no longer zero while
    members sleep: from then on each of their beats would teach them something.
    """

    def __init__(
        self, clock_us: Callable[[], int], on_commit: Callable[[], None], on_unrest: Callable[[], None]
    ) -> None:
        super().__init__(clock_us)
        self.asleep: dict[str, None] = {}
        self.is_calm = True
        self._on_commit = on_commit
        self._on_unrest = on_unrest
        self._repeated_us = 0

    async def beat(self, beat: Beat, *, settings: str, window_us: int, expiry_us: int) -> BeatReply:
        """As the store in memory, which is told first that the sleeping are alive."""
        self._repeat_beats(expiry_us)
        reply = await super().beat(beat, settings=settings, window_us=window_us, expiry_us=expiry_us)
        self._see_medians(reply.median_errors, reply.median_ratio)
        return reply

    def _see_medians(self, errors: int, ratio: int) -> None:
        self.is_calm = errors <= 0 and ratio <= 0
        if not self.is_calm and self.asleep:
            self._on_unrest()

    def mark(self, instance: str) -> AnswerMark:
        """What the answer to a beat of this instance depends on, but for medians, tokens in use and the time."""
        roster = self._roster
        return AnswerMark(
            self._revision, len(roster.alive), tuple(roster.causes.items()), roster.rows.get(instance, "")
        )

    def repeat(self, beat: Beat, known: AnswerMark, terms: Terms) -> tuple[int, int] | None:
        """Record a beat that differs from the last one in its errors only.

        The medians of errors and ratios; None if the answer may be another one than with the ``known`` mark.
        """
        now_us, expiry_us, roster, state = self._clock_us(), terms.expiry_us, self._roster, self.state()
        self._repeat_beats(expiry_us)
        oldest = roster.alive.at(0)
        is_due = 0 < state.due_us <= now_us or now_us - state.several_us >= SEVERAL_EVERY_US
        is_due = is_due or beat.presence in (Presence.DOWN, Presence.GONE)
        if is_due or oldest is None or oldest[1] < now_us - expiry_us or self.mark(beat.instance) != known:
            return None
        roster.take_in(beat, now_us, terms.window_us, is_culled=False)
        medians = roster.medians()
        self._see_medians(*medians)
        suspect = sum(roster.causes.values())
        is_sick = episode.is_majority(medians[0], terms.error_limit, suspect, len(roster.alive))
        return None if episode.is_due(state, roster.causes, now_us, is_sick=is_sick) else medians

    async def read(self, instance: str, *, window_us: int, expiry_us: int) -> Raw:
        """As ``beat``."""
        self._repeat_beats(expiry_us)
        return await super().read(instance, window_us=window_us, expiry_us=expiry_us)

    async def commit(self, revision: int, changes: Changes) -> int:
        """As the store in memory."""
        now_us = await super().commit(revision, changes)
        self._on_commit()
        return now_us

    def falls_asleep(self, instance: str) -> None:
        """This member sleeps from now on."""
        self.asleep[instance] = None

    def wakes(self, instance: str) -> None:
        """This member has beaten until now, and beats by itself again."""
        del self.asleep[instance]
        self._roster.alive.put(instance, self._clock_us())

    def _repeat_beats(self, expiry_us: int) -> None:
        now_us = self._clock_us()
        if self.asleep and now_us - self._repeated_us > expiry_us // _PART:
            self._repeated_us = now_us
            for instance in self.asleep:
                self._roster.alive.put(instance, now_us)

    # -- what the tables hold -------------------------------------------------------------------------------------

    @property
    def expects_newcomers(self) -> bool:
        """Whether a cull or a lease is not settled: the fleet waits for beats of the replacement."""
        return bool(self._tables["culls"] or self._tables["leases"])

    def slots(self) -> dict[str, Slot]:
        """Leases that are in use, by the instance that holds them."""
        now_us = self._clock_us()
        rows = ((name, Slot.read(text)) for name, text in self._tables["leases"].items())
        return {name: slot for name, slot in rows if slot is not None and slot.left_us(now_us)}

    def missing(self) -> set[str]:
        """Culled instances that the fleet does not know to be replaced."""
        rows = ((name, Cull.read(text)) for name, text in self._tables["culls"].items())
        return {name for name, cull in rows if cull is not None and cull.phase == "out"}

    def state(self) -> FleetState:
        """The state record of the fleet."""
        return FleetState.read(self._tables["state"].get("state", "")) or FleetState()
