"""The simulation decides as real processes do: one schedule, played by both, and each decision is compared.

An hour of the default settings is compressed to half a minute. The real sidecars go first. The simulation then gets
every report at the time at which the real sidecar had it, so a busy machine changes both alike.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from harness.fleet_driver import await_metrics
from harness.sidecar import GATES, Setting
from harness.waiting import wait_for
from sidecar.config.settings import load_config
from sidecar.controller.ledger_entries import EntryWriter
from sidecar.core.life.snapshot import Record
from sidecar.core.types import Entry, ErrorReport
from sidecar.simulation.fleet_rules import FleetRules
from sidecar.simulation.simulated_sidecar import SimulatedSidecar
from sidecar.simulation.traffic import RequestLoad
from sidecar.simulation.virtual_loop import EPOCH_S
from sidecar.simulation.world import World

if TYPE_CHECKING:
    from harness.redis_server import RedisServer
    from harness.sidecar import Sidecar
    from harness.sidecar_pool import SidecarPool

pytestmark = [pytest.mark.redis, pytest.mark.site]

NAMES: Final = tuple(f"n{number:02d}" for number in range(6))
COMPRESSED: Final[dict[str, Setting]] = {
    **GATES,
    "min_healthy": "5",
    "refund": "off",
    "budget": "2",
    "budget_window": "12s",
    "error_window": "3s",
    "check_interval": "1s",
    "check_jitter": "0",
    "settle": "300ms",
    "drain": "0s",
    "probation": "1s",
    "beat_interval": "500ms",
    "redis_timeout": "900ms",
}
FIRST_S: Final = 20.0
"""When the schedule begins in the simulation: all its sidecars have started and beaten by then."""

AFTER_S: Final = 8.0
"""Time for the last decision, in the simulation."""

DECISIONS: Final = frozenset({"suspect", "recovered", "granted", "denied", "culled", "restarted"})
OUTCOMES: Final = frozenset({"helped", "unhelped", "unclear"})


class Step(NamedTuple):
    """One event of the schedule, in seconds: a container reports errors or is restarted, or a person holds culls."""

    at_s: float
    name: str
    errors: int = 0
    kind: str = "redis"
    restarts: bool = False
    hold_s: float = 0.0


SCHEDULE: Final = (
    Step(0.0, "n00", 5),  # granted: the first token
    Step(1.5, "n01", 5),  # refused by the trial, recovers
    Step(2.0, "n02", 5, "mysql"),  # refused by the floor, recovers
    Step(5.5, "n00", restarts=True),
    Step(6.5, "n03", 3, "kafka"),  # under the limit
    Step(7.0, "n03", 2, "kafka"),  # granted: the second token
    Step(8.5, "n03", restarts=True),
    Step(10.5, "n04", 5, "dns"),  # refused by the window, granted when the first token is free again
    Step(12.0, "n04", 5, "dns"),
    Step(14.5, "n04", restarts=True),
    Step(15.5, "n05", hold_s=7.0),
    Step(16.5, "n05", 5, "mysql"),  # held, recovers long before the hold is over
    Step(24.0, "n02", 5, "amqp"),  # granted
    Step(25.5, "n02", restarts=True),
    Step(25.9, "n02", 5, "amqp"),  # the cull has not helped: refused by the pause
    Step(27.0, "n01", 5, "amqp"),  # refused by the pause
)


def test_the_simulation_decides_as_real_sidecars_do(pool: SidecarPool, redis_server: RedisServer) -> None:
    fleet = pool.fleet(len(NAMES), redis_url=redis_server.url, **COMPRESSED)
    played = _played_by(fleet)
    simulated = _simulated(played)
    wait_for(lambda: _has_ended(fleet[0]), timeout_s=60, what="the ledger has the last decision")
    real = _ledger(fleet[0])
    assert _by_container(_decisions(real)) == _by_container(_decisions(simulated))
    assert _grants(real) == _grants(simulated)
    assert _by_container(_outcomes(real)) == _by_container(_outcomes(simulated))
    assert {"trial", "floor", "window", "paused"} <= {entry.reason for entry in real if entry.what == "denied"}
    assert len(_grants(real)) == 4


# -- the real fleet -----------------------------------------------------------------------------------------------


def _played_by(fleet: Sequence[Sidecar]) -> list[Step]:
    """Play the schedule with real sidecars, to the last decision; the steps at the times at which they came."""
    by_name = {one.name.removeprefix("sidecar-"): one for one in fleet}
    lives = Counter[str]()
    for name in NAMES:
        _restart(by_name[name], lives)
    for one in fleet:
        await_metrics(one, {"arbiter_fleet_alive": len(NAMES)})
    began_at = time.monotonic() + 1.0
    played = []
    for step in SCHEDULE:
        time.sleep(max(0.0, began_at + step.at_s - time.monotonic()))
        one = by_name[step.name]
        if step.restarts:
            wait_for(partial(_is_down, one), timeout_s=60, what=f"{step.name} is down")
            _restart(one, lives)
        elif step.hold_s:
            order = {"for": f"{step.hold_s}s", "author": "ann", "reason": "migration"}
            assert one.request("local", "POST", "/hold", json.dumps(order)).status == 200
        else:
            one.post_error(count=step.errors, kind=step.kind, app_start=f"life-{lives[step.name]}")
        played.append(step._replace(at_s=time.monotonic() - began_at))
    wait_for(lambda: all(one.verdict()["state"] == "up" for one in fleet), timeout_s=60, what="all are up again")
    return played


def _is_down(one: Sidecar) -> bool:
    return one.health()[0] == 503


def _restart(one: Sidecar, lives: Counter[str]) -> None:
    name = str(one.settings["instance"])
    lives[name] += 1
    one.post_error(count=0, app_start=f"life-{lives[name]}")


def _ledger(one: Sidecar) -> list[Entry]:
    events = one.request("local", "GET", "/events?since=1h&most=500").json()["events"]
    return [Entry(**{name: event[name] for name in Entry._fields if name in event}) for event in events]


# -- the simulated fleet ------------------------------------------------------------------------------------------


class _Watched(World):
    """A world that writes what each of its sidecars would write into the ledger."""

    entries: list[Entry]
    writers: dict[str, EntryWriter]

    def _moved(self, sidecar: SimulatedSidecar, record: Record) -> None:
        name = NAMES[sidecar.app.place]
        writer = self.writers.setdefault(name, EntryWriter(name))
        self.entries += writer.of_step(record, self.loop.wall_s, self.loop.now)
        super()._moved(sidecar, record)


def _simulated(played: Iterable[Step]) -> list[Entry]:
    """The entries of a simulated fleet with the same settings and the same schedule."""
    environ = {f"ARBITER_{name.upper()}": str(value) for name, value in COMPRESSED.items()}
    environ |= {"ARBITER_REDIS_URL": "redis://127.0.0.1/0", "ARBITER_SERVICE": "app", "ARBITER_INSTANCE": "n"}
    world = _Watched(FleetRules.of("yours", load_config({}, environ)), size=len(NAMES), seed=1, load=RequestLoad(1.0))
    world.entries, world.writers = [], {}
    for app in world.apps:
        app.deaf = True  # the schedule restarts, not the scheduler
    lives, last_s = Counter[str](), 0.0
    for step in played:
        last_s = FIRST_S + step.at_s
        world.loop.plan(last_s, _event(world, step, lives))
    try:
        world.run(last_s + AFTER_S)
        rows = [*world.entries, *_stored(world)]
    finally:
        world.close()
    names = {app.instance: NAMES[app.place] for app in world.apps}
    return [entry._replace(instance=names.get(entry.instance, entry.instance)) for entry in rows]


def _event(world: World, step: Step, lives: Counter[str]) -> Callable[[], object]:
    place = NAMES.index(step.name)
    if step.hold_s:
        return lambda: world.loop.create_task(world.hold("ann", "migration", step.hold_s))
    if step.restarts:
        lives[step.name] += 1
        return partial(world.report, place, ErrorReport(0, app_start=f"life-{lives[step.name]}"))
    return partial(world.report, place, ErrorReport(step.errors, kind=step.kind))


def _stored(world: World) -> Sequence[Entry]:
    """What the store itself has written: the outcomes."""
    request = world.store.entries(EPOCH_S, "", 500)
    try:
        request.send(None)
    except StopIteration as answer:
        entries: Sequence[Entry] = answer.value
        return entries
    raise AssertionError("the store in memory answers at once")


def _has_ended(one: Sidecar) -> bool:
    """Whether the last container of the schedule has recovered after its last refusal."""
    last = [entry.what for entry in _ledger(one) if entry.instance == SCHEDULE[-1].name]
    return last.count("suspect") == last.count("recovered") == sum(step.name == SCHEDULE[-1].name for step in SCHEDULE)


# -- what is compared ---------------------------------------------------------------------------------------------


def _decisions(entries: Iterable[Entry]) -> list[Entry]:
    return sorted((entry for entry in entries if entry.what in DECISIONS), key=lambda entry: entry.at)


def _outcomes(entries: Iterable[Entry]) -> list[Entry]:
    return sorted((entry for entry in entries if entry.what in OUTCOMES), key=lambda entry: entry.at)


def _by_container(entries: Iterable[Entry]) -> Mapping[str, list[tuple[str, str, str]]]:
    found = defaultdict(list)
    for entry in entries:
        found[entry.instance].append((entry.what, entry.kind, entry.reason))
    return dict(sorted(found.items()))


def _grants(entries: Iterable[Entry]) -> list[str]:
    return [entry.instance for entry in _decisions(entries) if entry.what == "granted"]
