"""The scenarios of the table, and the outcome of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from simulation.departures import Cull, Retirement
from simulation.rules import Rules, rotation_s
from simulation.traffic import LOAD, Ledger, Load
from simulation.troubles import Outage, Poison, Sick, Stuck, Trouble, Wave
from simulation.world import NOMAD, Orchestrator, World

MINUTE_S: Final = 60.0
HOUR_S: Final = 3600.0


@dataclass(frozen=True)
class Scenario:
    """Troubles, a duration and a fleet, whose containers were started together ``aged_s`` seconds before."""

    name: str
    for_s: float
    troubles: tuple[Trouble, ...]
    size: int
    load: Load = LOAD
    orchestrator: Orchestrator = NOMAD
    aged_s: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run. ``recovered``: by trouble, when its last stuck container was down."""

    rules: str
    ledger: Ledger
    culls: tuple[Cull, ...]
    grants: tuple[float, ...]
    recovered: dict[str, float]
    stuck: int
    denials: dict[str, int]
    visits: tuple[float, ...]
    most_out: int
    retirements: tuple[Retirement, ...] = ()
    refusals: dict[str, int] = field(default_factory=dict)
    returns: tuple[tuple[float, int], ...] = ()
    most_retired: int = 0
    most_leases: int = 0
    rotation_s: float = 0.0
    oldest_s: float = 0.0
    fleet_outcomes: dict[str, int] = field(default_factory=dict)

    @property
    def failed(self) -> float:
        """Requests that failed."""
        return self.ledger.failed

    @property
    def avoidable(self) -> float:
        """Failed requests outside of outages."""
        return self.ledger.avoidable

    @property
    def vain(self) -> tuple[Cull, ...]:
        """Culls of containers that were not stuck: a restart could not help."""
        return tuple(cull for cull in self.culls if not cull.stuck_by)

    @property
    def in_outage(self) -> tuple[Cull, ...]:
        """Culls during an outage."""
        return tuple(cull for cull in self.culls if cull.in_outage)


def play(scenario: Scenario, rules: Rules, *, seed: int = 1, lost: int = 0) -> Outcome:
    """Run the scenario under these rules."""
    world = World(
        rules,
        size=scenario.size,
        seed=seed,
        lost=lost,
        aged_s=scenario.aged_s,
        load=scenario.load,
        orchestrator=scenario.orchestrator,
    )
    for trouble in scenario.troubles:
        trouble.plan(world)
    world.run(scenario.for_s)
    return outcome(world)


def outcome(world: World) -> Outcome:
    """The outcome of the run so far."""
    traces, departures, policy, apps = (world.network.traces, world.departures, world.rules.policy, world.apps)
    return Outcome(
        world.rules.name,
        world.ledger,
        tuple(departures.culls),
        tuple(traces.grants),
        dict(world.recovered),
        sum(bool(one.stuck) for one in apps),
        dict(traces.denials),
        tuple(world.visits),
        departures.most_out,
        tuple(departures.retirements),
        dict(traces.refusals),
        tuple(departures.returns),
        departures.most_retired,
        traces.most_leases,
        rotation_s(policy, len(apps)) if policy.lifetime_s else 0.0,
        max(departures.oldest_s, *(world.timeline.now - one.born for one in apps)),
        dict(world.state().outcomes),
    )


# -- the rows of the table ----------------------------------------------------------------------------------------

_ONE: Final = Load(1.0)
_FAIL: Final = 0.6

DAY: Final = Scenario(
    "day",
    12 * HOUR_S,
    (
        Poison(1800, count=8, until_s=41_000, part=_FAIL),
        Outage(12_000, 600, part=1.0),
        Stuck(24_000, 60, part=_FAIL),
        Wave(34_000, 300, 40, part=0.5),
    ),
    200,
)


def outage(size: int, per_s: float, for_s: float = 600, name: str = "") -> Scenario:
    """``per_s`` errors a second in every container for ``for_s`` seconds."""
    over_s = 300 + for_s
    title = name or f"outage n={size} {per_s:g}/s"
    return Scenario(title, over_s + 600, (Outage(300, for_s, part=per_s),), size, _ONE)


def noise(size: int, stray: float) -> Scenario:
    """Random errors of healthy containers."""
    return Scenario(f"noise n={size} {100 * stray:g} %", 2 * HOUR_S, (), size, Load(stray=stray))


OUTAGES: Final = (outage(30, 1), outage(12, 0.2), outage(30, 0.3))
SICK: Final = Scenario("14 of 30 sick", 300 + 20 * MINUTE_S, (Sick(300, 14, part=_FAIL),), 30)
NOISES: Final = (*(noise(50, stray) for stray in (0.002, 0.005, 0.01, 0.02)), noise(4, 0.002))
SEVENTY: Final = Scenario("70 of 100 stuck", 300 + 2 * HOUR_S, (Stuck(300, 70, part=_FAIL),), 100)
LONG: Final = outage(100, 1, HOUR_S, "outage of 1 h n=100")
LONE: Final = Scenario("lone", HOUR_S, (Poison(600, part=_FAIL),), 50, _ONE)

SCENARIOS: Final = (DAY, *OUTAGES, SICK, *NOISES, SEVENTY, LONG, LONE)
