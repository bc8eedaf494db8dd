"""The relations S > L > C and S/k > L/k > C, and when a life is over."""

from __future__ import annotations

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
