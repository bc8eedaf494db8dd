"""How long the next step may wait."""

from __future__ import annotations

import pytest

from sidecar.core.life.culling import honour_s, unknown_delay


@pytest.mark.parametrize(("unknowns", "delay_s"), [(0, 1), (1, 2), (4, 16), (5, 30), (10_000, 30)])
def test_back_off_of_unknown_doubles_up_to_half_a_minute(unknowns: int, delay_s: float) -> None:
    assert unknown_delay(unknowns) == delay_s


@pytest.mark.parametrize(("drain_s", "seconds"), [(100, 300), (101, 303), (600, 1_800)])
def test_cull_is_honoured_within_five_minutes_or_three_drains(drain_s: float, seconds: float) -> None:
    assert honour_s(drain_s) == seconds
