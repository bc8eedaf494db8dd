"""The brake: when it comes on, whom it lets pass, and what ends it."""

from __future__ import annotations

import pytest

from sidecar.core.incident import Incident
from sidecar.core.words import Brake

HALF = 500
PROBATION_US = 60
WINDOW_US = 600


def incident(brake: Brake = Brake.ON, began_us: int = 1_000) -> Incident:
    it = Incident()
    it.look(10, 10, began_us, HALF, PROBATION_US)
    it.brake = brake
    return it


# -- it comes on ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alive", "wanting", "limit", "brake"),
    [
        (3, 2, HALF, Brake.OFF),
        (3, 3, HALF, Brake.ON),
        (6, 3, HALF, Brake.ON),
        (7, 3, HALF, Brake.OFF),
        (200, 99, HALF, Brake.OFF),
        (200, 100, HALF, Brake.ON),
        (200, 200, 0, Brake.OFF),
        (200, 199, 1000, Brake.OFF),
        (200, 200, 1000, Brake.ON),
        (0, 0, HALF, Brake.OFF),
    ],
)
def test_brake_is_on_from_three_who_want_and_its_part_of_the_alive(
    alive: int, wanting: int, limit: int, brake: Brake
) -> None:
    it = Incident()
    it.look(alive, wanting, 1, limit, PROBATION_US)
    assert it.brake is brake


# -- it ends --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("brake", [Brake.ON, Brake.OPEN, Brake.CLOSED])
def test_incident_is_over_when_the_wanting_were_few_for_a_probation(brake: Brake) -> None:
    it = incident(brake)
    it.look(10, 0, 1_060, HALF, PROBATION_US)
    assert it.brake is brake
    it.look(10, 0, 1_061, HALF, PROBATION_US)
    assert it.brake is Brake.OFF


def test_relapse_within_the_probation_is_the_same_incident() -> None:
    it = incident(Brake.CLOSED)
    it.look(10, 0, 1_050, HALF, PROBATION_US)
    it.look(10, 9, 1_059, HALF, PROBATION_US)
    it.look(10, 0, 1_119, HALF, PROBATION_US)
    assert (it.brake, it.began_us) == (Brake.CLOSED, 1_000)


def test_brake_that_is_turned_off_ends_the_incident_at_once() -> None:
    it = incident(Brake.CLOSED)
    it.look(10, 10, 1_001, 0, PROBATION_US)
    assert it.brake is Brake.OFF


# -- whom it lets pass ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("brake", "may"), [(Brake.OFF, True), (Brake.ON, True), (Brake.OPEN, True), (Brake.CLOSED, False)]
)
def test_nobody_passes_a_closed_brake(brake: Brake, *, may: bool) -> None:
    assert incident(brake).may_cull(1_001, WINDOW_US, 0) is may


@pytest.mark.parametrize(
    ("now_us", "index", "may"),
    [(1_010, 0, False), (1_610, 0, False), (1_611, 0, True), (1_611, 1, False)],
    ids=["at once", "at the end of the window", "a window later", "not by the second server"],
)
def test_one_canary_a_window_and_by_the_first_server(now_us: int, index: int, *, may: bool) -> None:
    it = incident()
    it.canary_us = 1_010
    assert it.may_cull(now_us, WINDOW_US, index) is may


def test_window_of_the_canary_outlasts_its_incident() -> None:
    it = incident()
    it.canary_us = 1_010
    it.look(10, 0, 1_100, HALF, PROBATION_US)
    it.look(10, 9, 1_101, HALF, PROBATION_US)
    assert it.brake is Brake.ON
    assert not it.may_cull(1_101, WINDOW_US, 0)


# -- what is learned ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "culled_us", "helped", "after"),
    [
        (Brake.ON, 1_000, True, Brake.OPEN),
        (Brake.ON, 1_000, False, Brake.CLOSED),
        (Brake.ON, 999, True, Brake.ON),
        (Brake.ON, 999, False, Brake.ON),
        (Brake.OPEN, 1_001, False, Brake.OPEN),
        (Brake.CLOSED, 1_001, True, Brake.CLOSED),
        (Brake.OFF, 1_001, True, Brake.OFF),
    ],
)
def test_only_a_cull_of_this_incident_moves_a_brake_that_is_on(
    before: Brake, culled_us: int, after: Brake, *, helped: bool
) -> None:
    it = incident(before)
    it.judged(culled_us, helped=helped)
    assert it.brake is after


@pytest.mark.parametrize(
    ("before", "after"),
    [(Brake.CLOSED, Brake.ON), (Brake.OPEN, Brake.OPEN), (Brake.ON, Brake.ON), (Brake.OFF, Brake.OFF)],
)
def test_release_opens_a_closed_brake_for_one_canary(before: Brake, after: Brake) -> None:
    it = incident(before)
    it.released()
    assert it.brake is after
