"""Outages, one after the other, in virtual time: how many containers does the fleet lose, and are the sick healed?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from harness.rule_fleet import TERMS, RuleFleet, fleet_of_size, names, word
from sidecar.core.types import US_PER_S, Denied, Presence

WINDOW_S = TERMS.window_us // US_PER_S
STEP_S = 5
REPLACED_AFTER_S = 45

Sick = Callable[[str, int, float], str]
"""``(instance, life, seconds since the beginning) -> cause``; empty: it is well."""


@dataclass
class Told:
    """What became of a fleet."""

    culls: list[tuple[float, str, str]]
    reasons: Counter[str]

    def count(self, cause: str = "") -> int:
        return sum(cause in ("", one) for _, _, one in self.culls)

    def most_in(self, seconds: float) -> int:
        """The largest number in any closed span of so many seconds."""
        times = [at for at, _, _ in self.culls]
        return max((sum(first <= at <= first + seconds for at in times) for first in times), default=0)


def play(it: RuleFleet, count: int, sick: Sick, seconds: int, *, away: range = range(0)) -> Told:
    """Let so many live on: they beat, they claim while they are sick, and the culled are replaced in their place.

    ``away``: seconds in which the store is not there for anybody.
    """
    told, began_us = Told([], Counter()), it.now_us
    ask_at: dict[str, float] = {}
    back_at: dict[str, float] = {}
    for step in range(0, seconds, STEP_S):
        it.advance(STEP_S)
        at = (it.now_us - began_us) / US_PER_S
        if step in away:
            continue
        for number, name in enumerate(names(count)):
            cause = sick(name, it.lives[name], at)
            if name in back_at:
                if at < back_at[name]:
                    continue
                del back_at[name]
                it.replaced(name, Presence.SUSPECT if (cause := sick(name, 1, at)) else Presence.WELL)
            elif (step // STEP_S + number) % 2 or (bool(cause) != bool(it.kept.rows.get(name, "\n\n").split("\n")[1])):
                it.beat(name, Presence.SUSPECT if cause else Presence.WELL, cause or "redis")
            if cause and at >= ask_at.get(name, 0):
                answer = it.claim(name, cause)
                told.reasons[word(answer)] += 1
                if isinstance(answer, Denied):
                    ask_at[name] = at + max(30, min(answer.retry_after_s, 90))
                else:
                    told.culls.append((at, name, cause))
                    it.beat(name, Presence.DOWN, cause)
                    back_at[name] = at + REPLACED_AFTER_S
    return told


def always(part: int, cause: str = "db") -> Sick:
    """The first so many are sick for good, and a restart does not help."""
    return lambda name, _, __: cause if int(name[1:]) < part else ""


def stuck(part: int) -> Sick:
    """The first so many are stuck, and a restart heals them."""
    return lambda name, life, _: "db" if int(name[1:]) < part and life == 0 else ""


# -- culls do not help ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "part"),
    [(2, 2), (3, 3), (5, 5), (10, 10), (30, 30), (30, 15), (30, 14), (13, 7), (50, 3), (50, 50)],
)
def test_outage_that_restarts_do_not_heal_costs_one_container_a_pause(count: int, part: int) -> None:
    """Formerly 10, 5 and 9 more: 30 of 30 sick, 10 of 10, and half of 30, where the brake opened by itself."""
    it = fleet_of_size(count)
    told = play(it, count, always(part), 3 * WINDOW_S)
    assert told.most_in(WINDOW_S) == 1
    assert told.count() == 2  # the second pause is of two windows
    assert it.fleet().unhelped == 2
    assert it.fleet().paused == ("db",)


def test_outage_of_many_causes_costs_two_containers_a_window_and_one_for_each_cause() -> None:
    def sick(name: str, _: int, __: float) -> str:
        return f"cause-{int(name[1:]) % 5}"

    it = fleet_of_size(30)
    told = play(it, 30, sick, REPLACED_AFTER_S)
    assert (told.count(), told.reasons["causes"] > 0) == (2, True)
    it = fleet_of_size(30)
    told = play(it, 30, sick, WINDOW_S)
    culled = Counter(cause for _, _, cause in told.culls)
    assert (told.count(), set(culled.values())) == (2, {1})


def test_where_replacements_do_not_come_there_is_one_cull_a_window() -> None:
    it, culls = fleet_of_size(30), 0
    for _ in range(2 * WINDOW_S // 10):
        it.advance_beating(10, *names(30)[4:])
        it.beat_all(*(name for name in names(4) if it.phase(name) != "out"), presence=Presence.SUSPECT)
        for name in names(4):
            if it.phase(name) != "out" and word(it.claim(name, "db")) == "granted":
                it.beat(name, Presence.DOWN, "db")
                it.beat(name, Presence.GONE)
                culls += 1
    assert culls == 2


# -- culls help -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "sick", "windows"), [(40, 28, 4), pytest.param(100, 70, 8, marks=pytest.mark.site)], ids=["small", "large"]
)
def test_majority_that_a_restart_heals_is_healed_within_the_budget(size: int, sick: int, windows: int) -> None:
    """One, two, four, eight, and from then on ten a window."""
    it = fleet_of_size(size)
    told = play(it, size, stuck(sick), windows * WINDOW_S)
    assert {name for _, name, _ in told.culls} == set(names(sick))
    assert told.count() == sick
    assert told.most_in(WINDOW_S) == 10
    assert it.outcomes() == (sick, 0, 0)


def test_lone_sick_container_is_culled_at_once_and_one_more_of_another_cause_too() -> None:
    it = fleet_of_size(10)
    told = play(it, 10, lambda name, life, _: {"c03": "db", "c05": "net"}.get(name, "") if not life else "", 200)
    assert sorted(cause for _, _, cause in told.culls) == ["db", "net"]
    assert told.culls[-1][0] <= 2 * STEP_S
    assert it.outcomes() == (2, 0, 0)


def test_cause_that_stops_being_healed_is_paused_at_the_next_failure() -> None:
    """Restarts helped, and then the same errors have another reason, for all: one container is lost."""
    it = fleet_of_size(60)
    play(it, 60, stuck(6), 400)
    told = play(it, 60, always(60), WINDOW_S)
    assert told.count() == 1
    (trial,) = it.fleet().trials
    assert (trial.limit, trial.failures) == (1, 1)


def test_no_story_breaks_floor_or_budget() -> None:
    it = fleet_of_size(6, replace(TERMS, capacity="3", trial=False))
    told = play(it, 6, always(6), 3 * WINDOW_S)
    assert told.most_in(WINDOW_S) == 3
    assert it.fleet().alive >= 3
