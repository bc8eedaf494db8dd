"""What came of a day in the laboratory under one set of rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fleet.departures import CullSeen, RetirementSeen
from fleet.traffic import FailedRequests
from fleet.world import World
from sidecar.core.types import US_PER_S


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
    culls: tuple[CullSeen, ...]
    grants: tuple[float, ...]
    recovered: Mapping[str, float]
    stuck: int
    denials: Mapping[str, int]
    recoveries: int
    visits: tuple[float, ...]
    most_out: int
    window_s: float
    retirements: tuple[RetirementSeen, ...] = ()
    refusals: Mapping[str, int] = field(default_factory=dict)
    returns: tuple[tuple[float, int], ...] = ()
    most_retired: int = 0
    most_leases: int = 0
    oldest_s: float = 0.0
    fleet_outcomes: Mapping[str, int] = field(default_factory=dict)

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
            world.fleet_outcomes(),
        )

    @property
    def failed(self) -> float:
        """Requests that failed."""
        return self.failed_requests.failed

    @property
    def avoidable(self) -> float:
        """Failed requests outside of outages."""
        return self.failed_requests.avoidable

    @property
    def in_outage(self) -> tuple[CullSeen, ...]:
        """Culls during an outage."""
        return tuple(cull for cull in self.culls if cull.in_outage)

    @property
    def needs(self) -> Counter[str]:
        """The number of culls by what was wrong with the container."""
        return Counter(cull.need for cull in self.culls)


def most_within(times: Sequence[float], window_s: float) -> int:
    """The greatest number of these instants (ascending) in any closed window of ``window_s`` seconds."""
    most, first = 0, 0
    for last, when in enumerate(times):
        while when - times[first] > window_s:
            first += 1
        most = max(most, last - first + 1)
    return most
