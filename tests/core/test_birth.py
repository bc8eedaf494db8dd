"""The birth mark: who shows that memory was lost, and how long that weighs."""

from __future__ import annotations

from typing import Final

import pytest

from sidecar.core.birth import Birth, Mark

NOW_US: Final = 2_000_000
WINDOW_US: Final = 600
BORN_US: Final = 1_000_000


@pytest.mark.parametrize(
    ("known", "lost_us"),
    [
        (Mark(), 0),
        (Mark(BORN_US, 0), 0),
        (Mark(BORN_US, 5), 0),
        (Mark(BORN_US, 6), 2_000_000),
        (Mark(BORN_US - 1, 0), BORN_US),
        (Mark(BORN_US - 1, 9), BORN_US),
        (Mark(BORN_US + 1, 0), 2_000_000),
    ],
    ids=["nothing", "less", "as much", "more grants", "an older birth", "an older birth, more grants", "a later birth"],
)
def test_who_knows_of_another_birth_or_of_more_grants_shows_a_loss(known: Mark, lost_us: int) -> None:
    birth = Birth()
    birth.mark = Mark(BORN_US, 5)
    window_us = NOW_US
    for _ in range(2):
        birth.recognise(known, NOW_US)
        wait_us = lost_us + window_us + 1 - NOW_US if lost_us else 0
        assert (birth.lost_wait_us(NOW_US, window_us), birth.losses) == (wait_us, int(lost_us > 0))
        known = Mark(known.born_us, min(known.grants, birth.mark.grants))
    assert birth.mark.grants >= known.grants


def test_first_caller_gives_birth_and_shows_a_loss_only_if_it_knew_a_bucket() -> None:
    for known, losses in ((Mark(), 0), (Mark(BORN_US, 3), 1)):
        birth = Birth()
        birth.recognise(known, NOW_US)
        assert (birth.mark, birth.losses) == (Mark(NOW_US, known.grants), losses)


def test_loss_weighs_for_a_closed_window() -> None:
    birth = Birth()
    birth.recognise(Mark(BORN_US, 1), NOW_US)
    assert [birth.lost_wait_us(NOW_US + after, WINDOW_US) for after in (0, WINDOW_US, WINDOW_US + 1)] == [601, 1, 0]


def test_fleet_is_heard_half_an_expiry_after_birth_and_again_after_a_silence_of_many() -> None:
    birth = Birth()
    birth.recognise(Mark(), NOW_US)
    assert [birth.newborn_wait_us(NOW_US + after, 30) for after in (0, 14, 15)] == [15, 1, 0]
    birth.gathers(NOW_US + 100)
    assert [birth.newborn_wait_us(NOW_US + after, 30) for after in (100, 115)] == [15, 0]


def test_every_grant_is_in_the_mark() -> None:
    birth = Birth()
    birth.recognise(Mark(), NOW_US)
    birth.granted()
    birth.granted()
    assert birth.mark == Mark(NOW_US, 2)
