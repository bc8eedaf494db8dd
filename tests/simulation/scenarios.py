"""The stories that are told of a fleet, and what became of it in each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from sidecar.core.words import Brake
from simulation.ageing import Busy, Leak
from simulation.departures import Cull, Retirement
from simulation.rules import ALL, NOBODY, OURS, Rules, aging, renewal_s
from simulation.troubles import Flapping, Outage, Poison, Release, Trouble
from simulation.world import World

MINUTE_S: Final = 60.0
HOUR_S: Final = 3600.0
SIZE: Final = 200


@dataclass(frozen=True)
class Scenario:
    """Troubles, how long to look on, and what ways to run the fleet are put side by side.

    The containers have been started together, ``aged_s`` before.
    """

    name: str
    for_s: float
    troubles: tuple[Trouble, ...]
    ways: tuple[Rules, ...] = ALL
    aged_s: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """What became of a fleet: failed requests, culls in order, and by name when the last stuck container was down.

    ``avoidable``: requests that failed because their container was stuck; after a restart it would have answered them.
    ``grants``: when the bucket gave a token, some milliseconds before its cull. ``most_missing``: so many at once by
    the bucket's count. ``most_out``: so many were out of the balance. ``most_load``: so many requests a second
    went to one container, for however short a time.

    Of planned ends: ``retirements`` in order, ``refusals`` of leases, and of who came back ``returns`` when and where.
    ``most_leases`` were in use at once, ``most_retired`` away for their age. ``renewal_s``: what it takes to retire all
    by the numbers, 0 without a lifetime. ``oldest_s`` is the greatest age that anyone reached.
    """

    rules: str
    failed: float
    avoidable: float
    culls: tuple[Cull, ...]
    grants: tuple[float, ...]
    recovered: dict[str, float]
    stuck: int
    denials: dict[str, int]
    brakes: tuple[tuple[float, Brake], ...]
    useless: frozenset[str]
    most_missing: int
    most_out: int
    most_load: float
    helped: int
    unhelped: int
    unclear: int
    retirements: tuple[Retirement, ...] = ()
    refusals: dict[str, int] = field(default_factory=dict)
    returns: tuple[tuple[float, int], ...] = ()
    most_leases: int = 0
    most_retired: int = 0
    renewal_s: float = 0.0
    oldest_s: float = 0.0

    @property
    def vain(self) -> tuple[Cull, ...]:
        """Culls of containers that were not stuck, which no restart could help."""
        return tuple(cull for cull in self.culls if not cull.stuck_by)


def play(scenario: Scenario, rules: Rules, *, seed: int = 1, size: int = SIZE, lost: int = 0) -> Outcome:
    """Let it happen to a fleet under these rules."""
    world = World(rules, size=size, seed=seed, lost=lost, aged_s=scenario.aged_s)
    for trouble in scenario.troubles:
        trouble.plan(world)
    world.run(scenario.for_s)
    return outcome(world)


def outcome(world: World) -> Outcome:
    """What has become of a fleet until now."""
    traces, totals, departures = world.network.traces, world.bucket.trials.totals, world.departures
    policy, containers = world.rules.policy, world.containers
    helped, unhelped, unclear = totals.values()
    return Outcome(
        world.rules.name,
        world.ledger.failed,
        world.ledger.avoidable,
        tuple(departures.culls),
        tuple(traces.grants),
        dict(world.recovered),
        sum(bool(one.stuck) for one in containers),
        dict(traces.denials),
        tuple(traces.brakes),
        frozenset(traces.useless),
        traces.most_missing,
        departures.most_out,
        world.ledger.most_load,
        helped,
        unhelped,
        unclear,
        tuple(departures.retirements),
        dict(traces.refusals),
        tuple(departures.returns),
        traces.most_leases,
        departures.most_retired,
        renewal_s(policy, len(containers)) if policy.lifetime_s else 0.0,
        max(departures.oldest_s, *(world.timeline.now - one.born for one in containers)),
    )


LONE: Final = Scenario("lone", 15 * MINUTE_S, (Poison(60, count=8, every_s=90),))
OUTAGE: Final = Scenario("outage", 20 * MINUTE_S, (Outage(8.5 * MINUTE_S, 10.5 * MINUTE_S),))
"""Begins shortly before a window of the article's ends."""

STUCK: Final = Scenario("stuck", 63 * MINUTE_S, (Outage(120, 120, stuck=60),))
HALF: Final = Scenario("half", 10 * MINUTE_S, (Outage(120, 20, stuck=120),))
RELEASE: Final = Scenario("release", 20 * MINUTE_S, (Release(120, 50, 14 * MINUTE_S), Poison(11 * MINUTE_S)))
FLAPPING: Final = Scenario("flapping", 30 * MINUTE_S, (Flapping(60, 27 * MINUTE_S, 20),))


def day(hours: float = 24) -> Scenario:
    """A day of everything, or the same in fewer hours: a trouble lasts as long as ever, but they follow sooner."""
    hour_s = HOUR_S * hours / 24
    return Scenario(
        "day",
        24 * hour_s,
        (
            Poison(1 * hour_s, count=12, every_s=1.8 * hour_s),
            Flapping(3 * hour_s, HOUR_S, 20),
            Outage(9 * hour_s, 2 * MINUTE_S, stuck=60),
            Outage(18 * hour_s, 20 * MINUTE_S, name="outage"),
        ),
    )


PATIENCE_S: Final = 9 * HOUR_S
LIFETIMES: Final = Scenario(
    "lifetimes",
    12 * HOUR_S,
    (Busy(40, until_s=12 * HOUR_S),),
    (
        aging("1", name="1 slot", patience_s=PATIENCE_S),
        aging("3", patience_s=PATIENCE_S),
        aging("50p", name="5 %", patience_s=PATIENCE_S),
        aging("1", 2 * HOUR_S, name="1 slot, LIFETIME=2h"),
    ),
)
"""A fifth of the fleet is busy all the time. With 1 slot in 2 h the arithmetic says that it cannot work."""

LEAK: Final = Scenario(
    "leak",
    24 * HOUR_S,
    (Leak(8 * HOUR_S),),
    (NOBODY, OURS, aging("1", name="1 slot"), aging("3"), aging("50p", name="5 %")),
)
"""Started together, all of them fail from an age of 8 to 10 h on: after their LIFETIME of 6 h."""

SCENARIOS: Final = (LONE, OUTAGE, STUCK, HALF, RELEASE, FLAPPING, LIFETIMES, LEAK)
