"""Reads a made-up day from TOML: the fleet, its scheduler and balancer, the incidents, and settings of the sidecar.

Every problem is one sentence that begins with its place, such as ``day.toml: [[incident]] 2: for``.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil, isfinite
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from sidecar.runlock import durations
from sidecar.simulation.day_outcome import DAY_S, DayOutcome
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
MAX_DURATION_S: Final = 366 * DAY_S
MAX_BYTES: Final = 1 << 20

_TABLES: Final = ("name", "duration", "fleet", "scheduler", "balancer", "incident", "settings")


class DayError(Exception):
    """The day cannot be simulated; the text is one sentence with the place."""


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

    def play(self, rules: FleetRules, seed: int) -> DayOutcome:
        """What comes of this day under these rules. The same ``seed`` gives the same day, and the same outcome."""
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
            world.run(self.for_s)
            return DayOutcome.of(world)
        finally:
            world.close()


def shipped() -> list[str]:
    """The names of the days that come with the package."""
    return sorted(path.stem for path in DAYS.glob("*.toml"))


def find(name: str) -> Path:
    """The file of a day: a path, or the name of a shipped one."""
    return DAYS / f"{name}.toml" if name in shipped() and not Path(name).exists() else Path(name)


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file. Raises DayError."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise DayError(f"{path}: has more than {MAX_BYTES} bytes")
        return tomllib.loads(content.decode())
    except OSError as error:
        days = f"; the shipped days are {', '.join(shipped())}" if isinstance(error, FileNotFoundError) else ""
        raise DayError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}{days}") from None
    except UnicodeDecodeError:
        raise DayError(f"{path}: is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise DayError(f"{path}: is not TOML: {error}") from None


def read_day(path: Path) -> Day:
    """The day of a file. Raises DayError."""
    top = _Table(str(path), read_toml(path))
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
            fleet.number("capacity", HEADROOM * per_s, least=per_s, most=MAX_PER_S),
        ),
        fleet.part("spread", 0.0),
        fleet.seconds("age", 0.0, most=MAX_DURATION_S),
        _scheduler(scheduler),
        _has_weights(balancer),
        tuple(_incident(table, size, for_s, number) for number, table in top.tables("incident")),
        top.table("settings").content,
    )


def _scheduler(table: _Table) -> Scheduler:
    table.refuse_others(("replace", "in_place", "engineer_after"))
    replace_s, in_place = table.seconds("replace", 45.0, most=DAY_S), table.switch("in_place", default=False)
    engineer_s = table.seconds("engineer_after", 1800.0, most=MAX_DURATION_S)
    return Scheduler(
        (replace_s, replace_s), is_from_down=in_place, moved=0.0 if in_place else 1.0, engineer_s=engineer_s
    )


def _has_weights(table: _Table) -> bool:
    table.refuse_others(("weights",))
    return table.switch("weights", default=True)


# -- incidents ----------------------------------------------------------------------------------------------------


class _IncidentKind(NamedTuple):
    keys: tuple[str, ...]
    make: Callable[[_Table, str, int], Incident]


def _lone_stuck(table: _Table, name: str, size: int) -> Incident:
    at_s, until_s = table.seconds("at"), table.seconds("until", 0.0)
    if until_s and until_s <= at_s:
        raise table.problem("until", "must be after at")
    every_s, cause = table.seconds("every", 0.0), table.text("cause", "connection")
    return Poison(at_s, table.affected(size, 1), every_s, table.part("errors", 0.6), until_s, name, cause)


def _outage(table: _Table, name: str, _size: int) -> Incident:
    return Outage(
        table.seconds("at"),
        table.seconds("for", least=1),
        part=table.part("errors", 1.0),
        name=name,
        kind=table.text("cause", "database"),
    )


def _slow_outage(table: _Table, name: str, _size: int) -> Incident:
    at_s, for_s = table.seconds("at"), table.seconds("for", least=1)
    return Outage(at_s, for_s, part=table.part("errors", 0.02), name=name, kind=table.text("cause", "database"))


def _blip(table: _Table, name: str, size: int) -> Incident:
    at_s, for_s = table.seconds("at"), table.seconds("for", 0.0)
    stuck, part, cause = table.affected(size), table.part("errors", 0.6), table.text("cause", "database")
    if not for_s:
        return Stuck(at_s, stuck, part, cause, name)
    return Outage(at_s, for_s, stuck, part, name, cause)


def _wave(table: _Table, name: str, size: int) -> Incident:
    at_s, for_s, count = table.seconds("at"), table.seconds("for", least=1), table.affected(size)
    return Wave(at_s, for_s, count, table.part("errors", 0.5), table.text("cause", "timeout"), name)


def _sick(table: _Table, name: str, size: int) -> Incident:
    at_s, count = table.seconds("at"), table.affected(size)
    return Sick(at_s, count, table.part("errors", 0.5), table.text("cause", "timeout"), name)


def _bad_deploy(table: _Table, name: str, size: int) -> Incident:
    at_s, until_s, over_s = table.seconds("at"), table.seconds("until"), table.seconds("over", 60.0)
    if until_s <= at_s:
        raise table.problem("until", "must be after at")
    return Release(at_s, table.affected(size), until_s, over_s, table.part("errors", 0.5), name)


def _leak(table: _Table, name: str, _size: int) -> Incident:
    return Leak(table.seconds("after", least=1), kind=table.text("cause", "memory"), name=name)


def _flapping(table: _Table, name: str, size: int) -> Incident:
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


def _incident(table: _Table, size: int, for_s: float, number: int) -> Incident:
    word = table.text("kind")
    kind = KINDS.get(word)
    if kind is None:
        raise table.problem("kind", f"{word!r} is none of {', '.join(KINDS)}{_similar(word, KINDS)}")
    table.refuse_others(("kind", *kind.keys))
    if "at" in kind.keys and table.seconds("at") >= for_s:
        raise table.problem("at", "must be before the end of the day, which is its duration")
    return kind.make(table, f"{word} {number}", size)


# -- values -------------------------------------------------------------------------------------------------------


class _Table:
    """One table of the file, and its place for messages."""

    def __init__(self, place: str, content: Mapping[str, Any]) -> None:
        self.place = place
        self.content = content

    def problem(self, key: str, sentence: str) -> DayError:
        """The problem with a key of this table."""
        return DayError(f"{self.place}: {key}: {sentence}")

    def refuse_others(self, known: Collection[str]) -> None:
        """Refuse keys that nothing reads: they would be misspelt ones."""
        for key in self.content:
            if key not in known:
                raise self.problem(key, f"unknown key{_similar(key, known)}")

    def table(self, name: str) -> _Table:
        """A table in this one; empty if it is missing."""
        content = self.content.get(name, {})
        if not isinstance(content, dict):
            raise self.problem(name, f"must be a table, written [{name}]")
        return _Table(f"{self.place}: [{name}]", content)

    def tables(self, name: str) -> Iterator[tuple[int, _Table]]:
        """The tables of an array, numbered from 1."""
        rows = self.content.get(name, [])
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise self.problem(name, f"must be tables, each written [[{name}]]")
        for number, row in enumerate(rows, 1):
            yield number, _Table(f"{self.place}: [[{name}]] {number}", row)

    def seconds(
        self, key: str, default: float | None = None, *, least: float = 0, most: float = MAX_DURATION_S
    ) -> float:
        """A duration in seconds."""
        value = self._value(key, default)
        try:
            seconds = durations.parse(value)
        except ValueError as error:
            raise self.problem(key, f"{value!r} {error}") from None
        if not least <= seconds <= most:
            raise self.problem(key, f"{value!r} must be from {durations.write(least)} to {durations.write(most)}")
        return seconds

    def number(self, key: str, default: float | None = None, *, least: float, most: float) -> float:
        """A number within these bounds."""
        value = self._value(key, default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not isfinite(value) or not least <= value <= most:
            raise self.problem(key, f"{value!r} must be a number from {least:g} to {most:g}")
        return float(value)

    def part(self, key: str, default: float) -> float:
        """A part from 0 to 1."""
        return self.number(key, default, least=0, most=1)

    def count(self, key: str, default: int | None = None, *, most: int) -> int:
        """A whole number from 1."""
        value = self._value(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            raise self.problem(key, f"{value!r} must be a whole number from 1 to {most}")
        return value

    def affected(self, size: int, default: int | None = None) -> int:
        """The number of affected containers, from ``count`` or as ``share`` of the fleet."""
        if "share" in self.content:
            if "count" in self.content:
                raise self.problem("share", "cannot be given together with count")
            return max(1, ceil(size * self.number("share", least=0, most=1)))
        return self.count("count", default, most=size)

    def switch(self, key: str, *, default: bool) -> bool:
        """True or false."""
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise self.problem(key, f"{value!r} must be true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """A text that is not empty."""
        value = self._value(key, default)
        if not isinstance(value, str) or not value.isprintable() or not value:
            raise self.problem(key, f"{value!r} must be a text")
        return value

    def _value(self, key: str, default: T | None) -> T | Any:
        value = self.content.get(key, default)
        if value is None:
            raise self.problem(key, "is missing")
        return value


def _similar(word: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""
