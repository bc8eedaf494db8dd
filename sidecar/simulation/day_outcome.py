"""What came of a simulated day under one set of rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sidecar.core.fleet.terms import Share
from sidecar.core.types import US_PER_S
from sidecar.simulation.departures import SimulatedCull, SimulatedRetirement
from sidecar.simulation.simulated_network import SimulatedRefusal
from sidecar.simulation.timeline import COUNT_S, Timeline, tokens
from sidecar.simulation.traffic import FailedRequests
from sidecar.simulation.world import World

DAY_S: Final = 86_400.0


@dataclass(frozen=True)
class DayOutcome:
    """The outcome of a run of ``for_s`` seconds under the ``rules`` of this name.

    ``grants``: when a token was granted. ``recovered``: by incident, when its last stuck container was out of service.
    ``stuck``: containers that are stuck at the end. ``denials`` and ``refusals``: answers to claims and to requests for
    leases, by reason. ``refused``: the number of containers, by the reason that one of their claims was refused for.
    ``recoveries``: suspects that became well without a restart. ``visits``: when an engineer came. ``names``: of the
    containers, by place. ``budget``: tokens a window.
    """

    rules: str
    for_s: float
    failed_requests: FailedRequests
    culls: tuple[SimulatedCull, ...]
    grants: tuple[float, ...]
    recovered: Mapping[str, float]
    stuck: int
    denials: Mapping[str, int]
    refused: Mapping[str, int]
    recoveries: int
    visits: tuple[float, ...]
    most_out: int
    window_s: float
    retirements: tuple[SimulatedRetirement, ...] = ()
    refusals: Mapping[str, int] = field(default_factory=dict)
    returns: tuple[tuple[float, int], ...] = ()
    most_retired: int = 0
    most_leases: int = 0
    oldest_s: float = 0.0
    fleet_outcomes: Mapping[str, int] = field(default_factory=dict)
    first_refusals: tuple[SimulatedRefusal, ...] = ()
    names: tuple[str, ...] = ()
    budget: int | None = None
    timeline: Timeline | None = field(default=None, compare=False)

    @classmethod
    def of(cls, world: World) -> DayOutcome:
        """The outcome of the run so far."""
        answers, departures, apps = world.network.answers, world.departures, world.apps
        return cls(
            world.rules.name,
            world.loop.now,
            world.traffic.failed,
            tuple(departures.culls),
            tuple(answers.grants),
            dict(world.recovered),
            sum(bool(one.stuck) for one in apps),
            dict(answers.denials),
            {reason: len(refused) for reason, refused in answers.refused.items()},
            world.recoveries,
            tuple(world.visits),
            departures.most_out,
            world.rules.terms.window_us / US_PER_S,
            tuple(departures.retirements),
            dict(answers.refusals),
            tuple(departures.returns),
            departures.most_retired,
            answers.most_leases,
            max([departures.oldest_s, *(world.loop.now - one.born for one in apps)]),
            dict(world.store.state().outcomes),
            first_refusals=tuple(answers.first_refusals),
            names=tuple(world.names),
            timeline=world.timeline,
            budget=Share.read(world.rules.terms.capacity).at_most(world.most_apps) if world.rules.watches else None,
        )

    def series(self) -> dict[str, Any] | None:
        """The course of the run as JSON values, for pictures; None if it was dropped."""
        if self.timeline is None:
            return None
        self.timeline.end_s = self.for_s
        return {
            "step_s": self.timeline.bin_s,
            "count_s": min(self.timeline.bin_s, COUNT_S),
            "buckets": self.timeline.bins,
            "budget_used": tokens(self.grants, self.window_s),
            "budget": self.budget,
            "containers": self.timeline.containers(self.names),
        }

    @property
    def failed(self) -> float:
        """Requests that failed."""
        return self.failed_requests.failed

    @property
    def avoidable(self) -> float:
        """Failed requests outside of outages."""
        return self.failed_requests.avoidable

    @property
    def in_outage(self) -> tuple[SimulatedCull, ...]:
        """Culls during an outage."""
        return tuple(cull for cull in self.culls if cull.in_outage)

    @property
    def culls_per_day(self) -> float:
        """The culls of the run, as a rate."""
        return len(self.culls) * DAY_S / self.for_s if self.for_s else 0.0

    @property
    def needs(self) -> Counter[str]:
        """The number of culls by what was wrong with the container."""
        return Counter(cull.need for cull in self.culls)

    @property
    def causes(self) -> Counter[str]:
        """The number of culls by the claimed cause."""
        return Counter(cull.cause for cull in self.culls)

    @property
    def most_tokens(self) -> int:
        """The most tokens that were granted within any window."""
        return most_within(self.grants, self.window_s)

    @property
    def cull_times_s(self) -> list[float]:
        """Seconds from stuck to culled, of each stuck container that was culled, ascending."""
        return sorted(cull.stuck_s for cull in self.culls if cull.stuck_by)


def most_within(times: Sequence[float], window_s: float) -> int:
    """The greatest number of these instants (ascending) in any closed window of ``window_s`` seconds."""
    most, first = 0, 0
    for last, when in enumerate(times):
        while when - times[first] > window_s:
            first += 1
        most = max(most, last - first + 1)
    return most
