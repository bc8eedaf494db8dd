"""Fleets whose errors were recorded: the two readings, restarts, and rows that cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from sidecar.simulation.fleet_rules import CHECK_RESTART, NO_CULLING
from sidecar.simulation.incidents import Outage, Poison
from sidecar.simulation.recording import Began, Counted, Departed, Recorded, replay
from simulation.rules import ARTICLE, OURS
from simulation.scenarios import Scenario, play

NAMES = tuple(f"alloc/{number}" for number in range(8))


@dataclass
class Rows:
    """A record of eight old containers, with these rows."""

    rows: tuple[Recorded, ...]
    for_s: float = 3000.0

    def __iter__(self) -> Iterator[Recorded]:
        yield from (Began(0.0, name, 3600.0) for name in NAMES)
        yield from self.rows


def errors(first_s: int, last_s: int, name: str = NAMES[3]) -> tuple[Counted, ...]:
    return tuple(Counted(float(second), name, 5, None, "timeout") for second in range(first_s, last_s))


def culls(rows: tuple[Recorded, ...], *, goes_on: bool) -> list[tuple[str, int]]:
    """The culled containers, and the hundreds of seconds."""
    outcome = replay(Rows(rows), OURS, goes_on=goes_on)
    assert outcome.needs.keys() <= {"unknown"}
    return [(outcome.names[cull.place], int(cull.at_s // 100)) for cull in outcome.culls]


@pytest.mark.parametrize(
    ("rows", "optimistic", "pessimistic"),
    [
        (errors(600, 700), [6], [6]),
        (errors(600, 1400), [6], [6, 12]),
        (errors(600, 700) + errors(2500, 2520), [6, 25], [6, 25]),
        ((*errors(600, 700), Began(701.0, NAMES[3]), *errors(2500, 2520)), [6, 25], [6, 25]),
        ((Departed(500.0, NAMES[3]), Began(550.0, NAMES[3]), *errors(650, 700)), [6], [6]),
        (errors(600, 601)[:0], [], []),
    ],
    ids=["short", "long", "two troubles", "restarted", "moved", "nothing"],
)
def test_errors_of_a_culled_container_end_with_it_or_go_on(
    rows: tuple[Recorded, ...], optimistic: list[int], pessimistic: list[int]
) -> None:
    assert culls(rows, goes_on=False) == [(NAMES[3], at) for at in optimistic]
    assert culls(rows, goes_on=True) == [(NAMES[3], at) for at in pessimistic]


@pytest.mark.parametrize("kind", ["timeout", "db"])
def test_errors_just_at_the_limit_are_one_trouble(kind: str) -> None:
    """Five errors a minute for an hour. Chance alone gives a window with fewer now and then, which is no end of it."""
    policy = replace(OURS.policy, error_limit=9 if kind == "db" else 5, kind_limits=(("db", 5),))
    rows = tuple(Counted(float(second), NAMES[3], 1, None, kind) for second in range(700, 4300, 12))
    assert len(replay(Rows(rows, 4400.0), replace(OURS, policy=policy), goes_on=False).culls) == 1


def test_times_without_any_container_in_service_are_known() -> None:
    """The article's rule culls the only container, and its replacement comes 45 s later. The record ends meanwhile."""
    rows: tuple[Recorded, ...] = (*(Departed(1.0, name) for name in NAMES if name != NAMES[3]), *errors(600, 720))
    outcome = replay(Rows(rows, 750.0), ARTICLE, goes_on=True)
    assert [begin_s for begin_s, _ in outcome.without_service] == [cull.at_s for cull in outcome.culls]
    *earlier, (_, last_s) = outcome.without_service
    assert {end_s - begin_s for begin_s, end_s in earlier} == {45.0}
    assert last_s == 750.0
    assert replay(Rows(errors(600, 720), 750.0), ARTICLE, goes_on=True).without_service == ()


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ((Counted(5.0, "away", 1),), "away has a row at 5 s, when it is not there"),
        ((Departed(5.0, NAMES[0]), Counted(6.0, NAMES[0], 1)), "alloc/0 has a row at 6 s"),
        ((Counted(6.0, NAMES[0], 1), Counted(5.0, NAMES[0], 1)), "out of order: 5 s comes after 6 s"),
    ],
)
def test_rows_that_cannot_be_are_named(rows: tuple[Recorded, ...], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        replay(Rows(rows), OURS, goes_on=True)


# -- what a scheduler does by health checks ----------------------------------------------------------------------------


def test_check_restart_restarts_a_lone_stuck_container_later_and_a_whole_fleet_in_an_outage() -> None:
    """Half of all three checks in a row fail while 0.8 of the requests do: it takes a minute or so."""
    scenario = Scenario("checks", 700, (Poison(60, part=0.8), Outage(400, 60, part=1.0)), 6)
    checks, ours, nothing = (play(scenario, rules) for rules in (CHECK_RESTART, OURS, NO_CULLING))
    assert checks.needs == {"stuck": 1, "outage": 6}
    assert checks.cull_times_s > ours.cull_times_s
    assert ours.avoidable < checks.avoidable < nothing.avoidable
    assert checks.most_out == 6
    assert {cull.reason for cull in checks.culls} == {"3 health checks in a row failed"}


# -- sleep ------------------------------------------------------------------------------------------------------------


def test_container_that_slept_decides_as_one_that_did_not() -> None:
    """With a request now and then every sidecar stays awake. The time to the cull is the same but for jitter."""
    scenario = Scenario("sleep", 1300, (Poison(1200, part=0.6),), 3)
    (slept,) = play(scenario, OURS).culls
    (awake,) = play(scenario, replace(OURS, reports_results=True)).culls
    assert (slept.place, slept.stuck_by) == (awake.place, awake.stuck_by)
    assert abs(slept.at_s - awake.at_s) < 30
