"""A sidecar of the simulation takes no turn that decides nothing: the same day with all turns has the same outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from sidecar.core.types import Report
from sidecar.simulation.counting_controller import CountingController
from sidecar.simulation.day_file import find, read_day
from sidecar.simulation.day_outcome import DayOutcome
from sidecar.simulation.fleet_store import FleetStore
from sidecar.simulation.incidents import Outage, Poison, Stuck
from sidecar.simulation.simulated_sidecar import SimulatedSidecar
from simulation.rules import OURS
from simulation.scenarios import Scenario, play

MIXED: Final = Scenario("mixed", 1500, (Poison(60, count=2), Outage(120, 200, stuck=3), Stuck(600, 6)), 16)
SHORT: Final = Scenario("short", 400, (Poison(60, count=2), Outage(120, 100, stuck=3)), 8)


def _short() -> DayOutcome:
    return play(SHORT, OURS, seed=1)


def _mixed() -> DayOutcome:
    return play(MIXED, OURS, seed=1)


def _flapping() -> DayOutcome:
    """Containers around the limit, whose sidecars fall asleep and wake up."""
    return read_day(find("flapping")).play(OURS, 1)


COUNT: Final = SimulatedSidecar._count


@pytest.mark.parametrize(
    "day", [_short, pytest.param(_mixed, marks=pytest.mark.site), pytest.param(_flapping, marks=pytest.mark.site)]
)
def test_day_with_a_turn_for_each_report_and_answer_and_all_beats_in_full_has_the_same_outcome(
    day: Callable[[], DayOutcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    spared: list[bool] = []
    take_answer = CountingController.take_answer

    def noted(*each: Any) -> bool:
        spared.append(take_answer(*each))
        return spared[-1]

    monkeypatch.setattr(CountingController, "take_answer", noted)
    quick = _told(day())
    assert sum(spared) > len(spared) / 2
    monkeypatch.setattr(CountingController, "take_answer", lambda *_: False)
    monkeypatch.setattr(FleetStore, "repeat", lambda *_: None)
    monkeypatch.setattr(SimulatedSidecar, "_count", _offer)
    assert quick == _told(day())


def _offer(sidecar: SimulatedSidecar, reports: Sequence[Report] = ()) -> None:
    """A turn for each report."""
    sidecar.wake()
    if reports:
        sidecar.controller.inbox.offer(reports)
    else:
        COUNT(sidecar)


def _told(outcome: DayOutcome) -> DayOutcome:
    assert outcome.culls and outcome.denials  # noqa: PT018 - a day without them would show nothing
    return replace(outcome, timeline=None)
