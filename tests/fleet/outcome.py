"""What came of a run: the containers that left the balancer and why, the answers to claims, and the failed requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fleet.traffic import App, FailedRequests
from sidecar.core.claims import Denied
from sidecar.core.life.events import Culled, Event, Moved, RetirementAnswered, TokenAnswered


@dataclass(frozen=True)
class CulledContainer:
    """A container that left the balancer by a token."""

    at_s: float
    place: int
    suspect_s: float
    stuck_by: str
    """The incident that only a restart ends; empty without one."""

    in_outage: bool
    is_flawed: bool
    """Whether its requests fail also after a restart."""

    @property
    def need(self) -> str:
        """What was wrong: ``stuck`` (a restart helps), ``outage`` of all, ``sick`` (no restart helps), ``healthy``."""
        if self.stuck_by:
            return "stuck"
        if self.in_outage:
            return "outage"
        return "sick" if self.is_flawed else "healthy"


@dataclass(frozen=True)
class RetiredContainer:
    """A container that left the balancer by a lease."""

    at_s: float
    place: int
    age_s: float


@dataclass
class Outcome:
    """The outcome of a run so far, from the events of the sidecars, the balancer and the scheduler."""

    requests: FailedRequests = field(default_factory=FailedRequests)
    culls: list[CulledContainer] = field(default_factory=list)
    retirements: list[RetiredContainer] = field(default_factory=list)
    returns: list[tuple[float, int]] = field(default_factory=list)
    """Time and place of each container that was up again without a restart."""

    denials: Counter[str] = field(default_factory=Counter)
    """Denied claims by reason."""

    refusals: Counter[str] = field(default_factory=Counter)
    """Denied requests for a lease by reason."""

    recovered: dict[str, float] = field(default_factory=dict)
    """When the last stuck container of an incident was out of service."""

    visits: list[float] = field(default_factory=list)
    """When an engineer came."""

    stuck: int = 0
    """Containers that are stuck at the end."""

    results: tuple[tuple[str, str, int], ...] = ()
    """Outcome, cause and number of culls, as the fleet knows them."""

    most_out: int = 0
    """The most containers out of the balancer at once."""

    most_retired: int = 0
    """The most of them that were retired."""

    @property
    def in_outage(self) -> list[CulledContainer]:
        return [cull for cull in self.culls if cull.in_outage]

    @property
    def needs(self) -> Counter[str]:
        """The number of culls by what was wrong with the container."""
        return Counter(cull.need for cull in self.culls)

    def answered(self, event: Event) -> None:
        """Count the answer that an event tells of, if any."""
        if isinstance(event, TokenAnswered | RetirementAnswered) and isinstance(event.answer, Denied):
            reasons = self.denials if isinstance(event, TokenAnswered) else self.refusals
            reasons[event.answer.reason] += 1

    def left(self, app: App, event: Moved, now: float, *, in_outage: bool) -> None:
        """Add a container that has just left the balancer."""
        if isinstance(event, Culled):
            suspect_s, stuck_by, is_flawed = event.suspect_s, app.stuck_by, app.flaw > 0
            self.culls.append(CulledContainer(now, app.place, suspect_s, stuck_by, in_outage, is_flawed))
        else:
            self.retirements.append(RetiredContainer(now, app.place, now - app.born))

    def count_out(self, apps: Iterable[App]) -> None:
        """Count the containers that are out of the balancer now."""
        out = [app for app in apps if not app.serving]
        self.most_out = max(self.most_out, len(out))
        self.most_retired = max(self.most_retired, sum(app.is_retired for app in out))


def most_within(times: Sequence[float], window_s: float) -> int:
    """The greatest number of these instants (ascending) in any closed window of ``window_s`` seconds."""
    most, first = 0, 0
    for last, at_s in enumerate(times):
        while at_s - times[first] > window_s:
            first += 1
        most = max(most, last - first + 1)
    return most
