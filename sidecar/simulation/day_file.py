"""Reads a made-up day from TOML: the fleet, its scheduler and balancer, the incidents, and settings of the sidecar.

Every problem is one sentence that begins with its place, such as ``day.toml: [[incident]] 2: for``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from sidecar.simulation.day_outcome import DAY_S, DayOutcome
from sidecar.simulation.day_table import MAX_DURATION_S, DayError, DayTable, similar
from sidecar.simulation.fleet_rules import FleetRules
from sidecar.simulation.incidents import (
    FLAP_PART,
    Flapping,
    Incident,
    Leak,
    Outage,
    Poison,
    Release,
    Sick,
    Stuck,
    Wave,
)
from sidecar.simulation.traffic import HEADROOM, RequestLoad
from sidecar.simulation.world import Scheduler, World

T = TypeVar("T")

DAYS: Final = Path(__file__).parent / "days"
"""The days that come with the package."""

MAX_CONTAINERS: Final = 5_000
MAX_PER_S: Final = 1e6
MAX_BYTES: Final = 1 << 20

_STEPS: Final = 100
"""How often a run tells how far it is."""

_TABLES: Final = ("name", "duration", "fleet", "scheduler", "balancer", "incident", "settings")


@dataclass(frozen=True)
class Day:
    """A fleet of ``size`` containers that started together ``aged_s`` seconds before, and what happens to it.

    ``spread``: the part by which the requests of a container differ from the usual. ``settings``: those of the sidecar,
    by name, not yet validated.
    """

    name: str
    for_s: float
    size: int
    load: RequestLoad
    spread: float = 0.0
    aged_s: float = 0.0
    scheduler: Scheduler = field(default_factory=Scheduler)
    has_weights: bool = True
    incidents: tuple[Incident, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    def play(self, rules: FleetRules, seed: int, on_part: Callable[[float], None] = lambda _: None) -> DayOutcome:
        """What comes of this day under these rules. The same ``seed`` gives the same day, and the same outcome.

        ``on_part`` gets the part that is done, from 0 to 1.
        """
        world = World(
            rules,
            size=self.size,
            seed=seed,
            aged_s=self.aged_s,
            load=self.load,
            spread=self.spread,
            has_weights=self.has_weights,
            scheduler=self.scheduler,
        )
        try:
            for incident in self.incidents:
                incident.plan(world)
            for step in range(1, _STEPS + 1):
                world.run(self.for_s * step / _STEPS)
                on_part(step / _STEPS)
            return DayOutcome.of(world)
        finally:
            world.close()


def shipped() -> list[str]:
    """The names of the days that come with the package."""
    return sorted(path.stem for path in DAYS.glob("*.toml"))


def find(name: str) -> Path:
    """The file of a day: a path, or the name of a shipped one. Raises DayError if there is neither."""
    path = Path(name)
    if path.exists():
        return path
    if name not in shipped():
        raise DayError(f"{name}: there is no such file; the shipped days are {', '.join(shipped())}")
    return DAYS / f"{name}.toml"


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file. Raises DayError."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise DayError(f"{path}: has more than {MAX_BYTES} bytes")
        return tomllib.loads(content.decode())
    except OSError as error:
        raise DayError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise DayError(f"{path}: is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise DayError(f"{path}: is not TOML: {error}") from None


def read_day(path: Path) -> Day:
    """The day of a file. Raises DayError."""
    top = DayTable(str(path), read_toml(path))
    top.refuse_others(_TABLES)
    fleet, scheduler, balancer = (top.table(name) for name in ("fleet", "scheduler", "balancer"))
    fleet.refuse_others(
        ("containers", "requests_per_second", "spread", "capacity", "background_errors", "age"),
    )
    size = fleet.count("containers", most=MAX_CONTAINERS)
    per_s = fleet.number("requests_per_second", 10.0, least=0.001, most=MAX_PER_S)
    for_s = top.seconds("duration", DAY_S, least=1, most=MAX_DURATION_S)
    return Day(
        top.text("name", path.stem),
        for_s,
        size,
        RequestLoad(
            per_s,
            fleet.part("background_errors", 0.0),
            fleet.number("capacity", HEADROOM * per_s, least=per_s, most=HEADROOM * MAX_PER_S),
        ),
        fleet.part("spread", 0.0),
        fleet.seconds("age", 0.0, most=MAX_DURATION_S),
        _scheduler(scheduler),
        _has_weights(balancer),
        tuple(_incident(table, size, for_s, number) for number, table in top.tables("incident")),
        top.table("settings").content,
    )


def _scheduler(table: DayTable) -> Scheduler:
    table.refuse_others(("replace", "in_place", "engineer_after"))
    replace_s, in_place = table.seconds("replace", 45.0, most=DAY_S), table.switch("in_place", default=False)
    engineer_s = table.seconds("engineer_after", 1800.0, most=MAX_DURATION_S)
    return Scheduler(
        (replace_s, replace_s), is_from_down=in_place, moved=0.0 if in_place else 1.0, engineer_s=engineer_s
    )


def _has_weights(table: DayTable) -> bool:
    table.refuse_others(("weights",))
    return table.switch("weights", default=True)


# -- incidents ----------------------------------------------------------------------------------------------------


class _IncidentKind(NamedTuple):
    keys: tuple[str, ...]
    make: Callable[[DayTable, str, int], Incident]


def _lone_stuck(table: DayTable, name: str, size: int) -> Incident:
    at_s, until_s = table.seconds("at"), table.seconds("until", 0.0)
    if until_s and until_s <= at_s:
        raise table.problem("until", "must be after at")
    every_s, cause = table.seconds("every", 0.0), table.text("cause", "connection")
    return Poison(at_s, table.affected(size, 1), every_s, table.part("errors", 0.6), until_s, name, cause)


def _outage(table: DayTable, name: str, _size: int) -> Incident:
    return Outage(
        table.seconds("at"),
        table.seconds("for", least=1),
        part=table.part("errors", 1.0),
        name=name,
        kind=table.text("cause", "database"),
    )


def _slow_outage(table: DayTable, name: str, _size: int) -> Incident:
    at_s, for_s = table.seconds("at"), table.seconds("for", least=1)
    return Outage(at_s, for_s, part=table.part("errors", 0.02), name=name, kind=table.text("cause", "database"))


def _blip(table: DayTable, name: str, size: int) -> Incident:
    at_s, for_s = table.seconds("at"), table.seconds("for", 0.0)
    stuck, part, cause = table.affected(size), table.part("errors", 0.6), table.text("cause", "database")
    if not for_s:
        return Stuck(at_s, stuck, part, cause, name)
    return Outage(at_s, for_s, stuck, part, name, cause)


def _wave(table: DayTable, name: str, size: int) -> Incident:
    at_s, for_s, count = table.seconds("at"), table.seconds("for", least=1), table.affected(size)
    return Wave(at_s, for_s, count, table.part("errors", 0.5), table.text("cause", "timeout"), name)


def _sick(table: DayTable, name: str, size: int) -> Incident:
    at_s, count = table.seconds("at"), table.affected(size)
    return Sick(at_s, count, table.part("errors", 0.5), table.text("cause", "timeout"), name)


def _bad_deploy(table: DayTable, name: str, size: int) -> Incident:
    at_s, until_s, over_s = table.seconds("at"), table.seconds("until"), table.seconds("over", 60.0)
    if until_s <= at_s:
        raise table.problem("until", "must be after at")
    return Release(at_s, table.affected(size), until_s, over_s, table.part("errors", 0.5), name)


def _leak(table: DayTable, name: str, _size: int) -> Incident:
    return Leak(table.seconds("after", least=1), kind=table.text("cause", "memory"), name=name)


def _flapping(table: DayTable, name: str, size: int) -> Incident:
    at_s, for_s, count = table.seconds("at"), table.seconds("for", least=1), table.affected(size)
    most = table.part("errors", FLAP_PART[1])
    return Flapping(at_s, for_s, count, name, (most / 10, most))


_SOME: Final = ("count", "share")
KINDS: Final[Mapping[str, _IncidentKind]] = {
    "lone_stuck": _IncidentKind(("at", "until", "every", *_SOME, "errors", "cause"), _lone_stuck),
    "outage": _IncidentKind(("at", "for", "errors", "cause"), _outage),
    "slow_outage": _IncidentKind(("at", "for", "errors", "cause"), _slow_outage),
    "blip": _IncidentKind(("at", "for", *_SOME, "errors", "cause"), _blip),
    "wave": _IncidentKind(("at", "for", *_SOME, "errors", "cause"), _wave),
    "sick": _IncidentKind(("at", *_SOME, "errors", "cause"), _sick),
    "bad_deploy": _IncidentKind(("at", "until", "over", *_SOME, "errors"), _bad_deploy),
    "leak": _IncidentKind(("after", "cause"), _leak),
    "flapping": _IncidentKind(("at", "for", *_SOME, "errors"), _flapping),
}
"""Each kind of incident: the keys of its table, and how it is made."""


def _incident(table: DayTable, size: int, for_s: float, number: int) -> Incident:
    word = table.text("kind")
    kind = KINDS.get(word)
    if kind is None:
        raise table.problem("kind", f"{word!r} is none of {', '.join(KINDS)}{similar(word, KINDS)}")
    table.refuse_others(("kind", *kind.keys))
    if "at" in kind.keys and table.seconds("at") >= for_s:
        raise table.problem("at", "must be before the end of the day, which is its duration")
    return kind.make(table, f"{word} {number}", size)
