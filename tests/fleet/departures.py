"""The containers that left the balancer, the causes, and the greatest number at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleet.app import App
from fleet.member import Member
from sidecar.core.types import Granted


@dataclass(frozen=True)
class CullSeen:
    """A culled container: ``stuck_by`` is empty if a restart cannot help; ``after_s``: since it was suspect.

    ``cause``: the claimed cause; ``reason``: the verdict as a sentence. ``in_outage``: during an outage of all
    containers. ``is_flawed``: its requests fail also after a restart. ``stuck_s``: since it was stuck.
    """

    at_s: float
    place: int
    stuck_by: str
    after_s: float
    cause: str
    replayed: bool
    in_outage: bool
    is_flawed: bool = False
    reason: str = ""
    stuck_s: float = 0.0

    @property
    def need(self) -> str:
        """What was wrong: ``stuck`` (a restart helps), ``outage`` of all, ``sick`` (no restart helps), ``healthy``."""
        if self.stuck_by:
            return "stuck"
        if self.in_outage:
            return "outage"
        return "sick" if self.is_flawed else "healthy"


@dataclass(frozen=True)
class RetirementSeen:
    """A retired container: the number of its incarnation, its age and its reported load."""

    at_s: float
    place: int
    life: int
    age_s: float
    load: float


class Departures:
    """All departures of a fleet, in order. ``returns``: retired containers that were up again without a restart.

    ``most_out``: the greatest number out of the balancer at once, ``most_retired`` of them retired. ``oldest_s``: the
    greatest age of a departing container.
    """

    def __init__(self, apps: Sequence[App]) -> None:
        self.culls: list[CullSeen] = []
        self.retirements: list[RetirementSeen] = []
        self.returns: list[tuple[float, int]] = []
        self.most_out = 0
        self.most_retired = 0
        self.oldest_s = 0.0
        self._containers = apps
        self._retired: set[int] = set()

    def leaves(
        self,
        app: App,
        sidecar: Member,
        now: float,
        suspect_s: float,
        reason: str,
        *,
        in_outage: bool,
    ) -> None:
        """A sidecar has just taken its container out of the balancer."""
        latch = sidecar.controller.container.latch
        if latch and latch.lease:
            age_s, load = now - app.born, app.load or 0.0
            self.retirements.append(RetirementSeen(now, app.place, app.life, age_s, load))
            self._retired.add(app.place)
        else:
            answer = sidecar.controller.container.answer
            if isinstance(answer, Granted):
                by, is_replay = app.stuck_by, answer.replayed
                stuck_s = now - app.stuck_at if by else 0.0
                self.culls.append(
                    CullSeen(
                        now,
                        app.place,
                        by,
                        suspect_s,
                        sidecar.budget.cause,
                        is_replay,
                        in_outage,
                        app.flaw > 0,
                        reason,
                        stuck_s,
                    )
                )
        self.oldest_s = max(self.oldest_s, now - app.born)
        self.count_out()
        self.most_retired = max(self.most_retired, len(self._retired))

    def count_out(self) -> None:
        """Count the containers that are out of service now."""
        self.most_out = max(self.most_out, sum(not one.serving for one in self._containers))

    def serves(self, app: App) -> None:
        """Another incarnation serves in this place."""
        self._retired.discard(app.place)

    def returned(self, app: App, now: float) -> None:
        """The same incarnation serves again."""
        self._retired.discard(app.place)
        self.returns.append((now, app.place))
