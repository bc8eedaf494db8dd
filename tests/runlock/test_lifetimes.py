"""The relations S > L > C and S/k > L/k > C, and when a life is over."""

from __future__ import annotations

import heapq
import random

import pytest

from sidecar.runlock.lifetimes import Life, Schedule, contradictions

HOLDS = [
    Schedule(every_s=60),
    Schedule(every_s=60, lifetime_s=61),
    Schedule(every_s=60, lifetime_s=300, has_standby=True),
    Schedule(every_s=60, lifetime_s=300, has_standby=True, standby_for_s=301),
    Schedule(every_s=60, lifetime_s=300, longest_s=600, has_standby=True, standby_for_s=601),
    Schedule(every_s=60, lifetime_s=241, slots=4),
    Schedule(every_s=60, lifetime_s=300, has_standby=True, standby_for_s=301, slots=4),
    Schedule(every_s=60, has_standby=True, standby_for_s=61),
    Schedule(every_s=60, lifetime_s=300, standby_for_s=1),
]
FAILS = [
    (Schedule(every_s=60, lifetime_s=60), "S > L > C does not hold: a main lives L = 60s, .* every C = 60s"),
    (
        Schedule(every_s=60, lifetime_s=240, slots=4),
        "S/k > L/k > C does not hold: of k = 4 .* L/k = 4m / 4 = 60s, .* every C = 60s",
    ),
    (
        Schedule(every_s=60, lifetime_s=300, has_standby=True, standby_for_s=300),
        "S > L > C does not hold: a standby waits S = 5m, and a main lives up to L = 5m",
    ),
    (
        Schedule(every_s=60, lifetime_s=300, longest_s=610, has_standby=True, standby_for_s=600),
        "S = 10m, and a main lives up to L = 610s",
    ),
    (
        Schedule(every_s=60, lifetime_s=300, has_standby=True, standby_for_s=450, slots=2, standbys=3),
        "S = 450s, and a main lives up to L = 5m: the last of 3 standbys waits up to 450s",
    ),
    (Schedule(every_s=60, has_standby=True, standby_for_s=60), "S = 60s, and the next is started only every C = 60s"),
    (Schedule(every_s=60, has_standby=True, standby_for_s=150, slots=3), "C = 60s, for k = 3"),
]


@pytest.mark.parametrize("schedule", HOLDS, ids=str)
def test_schedule_without_a_gap_is_accepted(schedule: Schedule) -> None:
    assert contradictions(schedule) == []


@pytest.mark.parametrize(("schedule", "said"), FAILS, ids=str)
def test_contradiction_is_reported_with_its_numbers(schedule: Schedule, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        raise AssertionError("; ".join(contradictions(schedule)))


def test_two_relations_are_two_sentences() -> None:
    assert len(contradictions(Schedule(every_s=60, lifetime_s=50, has_standby=True, standby_for_s=40))) == 2


@pytest.mark.parametrize(
    ("schedule", "jitter", "chance", "lives_s"),
    [
        (Schedule(every_s=60), 0.1, 0.5, 0),
        (Schedule(every_s=60, lifetime_s=300), 0.1, 0.0, 300),
        (Schedule(every_s=60, lifetime_s=300), 0.1, 0.5, 285),
        (Schedule(every_s=60, lifetime_s=300), 0.1, 1.0, 270),
        (Schedule(every_s=60, lifetime_s=300), 0.0, 1.0, 300),
        (Schedule(every_s=60, lifetime_s=300, slots=4), 0.5, 1.0, 240),
        (Schedule(every_s=60, lifetime_s=61), 0.5, 0.5, 60.5),
    ],
    ids=str,
)
def test_jitter_shortens_a_life_and_not_below_the_time_of_the_next_starts(
    schedule: Schedule, jitter: float, chance: float, lives_s: float
) -> None:
    assert schedule.with_jitter(jitter, chance) == pytest.approx(lives_s)


@pytest.mark.parametrize(
    ("life", "age_s", "busy", "over"),
    [
        (Life(), 1e9, False, False),
        (Life(300), 299.9, False, False),
        (Life(300), 300, False, True),
        (Life(300), 300, True, True),
        (Life(300, 600), 300, False, True),
        (Life(300, 600), 300, True, False),
        (Life(300, 600), 599.9, True, False),
        (Life(300, 600), 600, True, True),
    ],
    ids=str,
)
def test_a_life_is_over_at_its_age_and_later_only_while_it_is_busy(
    life: Life, age_s: float, *, busy: bool, over: bool
) -> None:
    assert life.is_over(age_s, busy=busy) is over


def _fewest(schedule: Schedule, jitter: float, chance: random.Random) -> int:
    """The fewest mains at a time in six hours, after all of them have started together at 0."""
    lives = [schedule.with_jitter(jitter, chance.random()) for _ in range(schedule.slots)]
    starts = [number * schedule.every_s + 1 for number in range(int(6 * 3600 / schedule.every_s))]
    events = [(at, "start") for at in starts] + [(at, "end") for at in lives]
    heapq.heapify(events)
    running, standbys, fewest = schedule.slots, 0, schedule.slots
    while events[0][0] < starts[-1]:
        at, what = heapq.heappop(events)
        if what == "start" and running == schedule.slots:
            standbys = min(standbys + 1, schedule.standbys)
            continue
        if what == "end":
            running -= 1
            if not standbys:
                fewest = min(fewest, running)
                continue
            standbys -= 1
        running += 1
        heapq.heappush(events, (at + schedule.with_jitter(jitter, chance.random()), "end"))
    return fewest


@pytest.mark.parametrize("lifetime_s", [300, 600, 3600])
@pytest.mark.parametrize("standbys", [0, 1, 2])
def test_as_many_mains_as_standbys_work_at_any_time_whatever_the_jitter(lifetime_s: int, standbys: int) -> None:
    schedule = Schedule(every_s=60, lifetime_s=lifetime_s, has_standby=True, slots=4, standbys=standbys)
    fewest = min(_fewest(schedule, 0.1, random.Random(seed)) for seed in range(40))
    assert fewest == standbys, "and no more than that is certain"


@pytest.mark.parametrize(("jitter", "standbys", "fewest"), [(0.0, 0, 0), (0.0, 1, 1), (0.0, 4, 4), (0.1, 1, 3)])
def test_jitter_and_standbys_keep_mains_that_started_together(jitter: float, standbys: int, fewest: int) -> None:
    schedule = Schedule(every_s=60, lifetime_s=3600, has_standby=True, slots=4, standbys=standbys)
    assert _fewest(schedule, jitter, random.Random(1)) >= fewest
    if not jitter:
        assert _fewest(schedule, jitter, random.Random(1)) == fewest
