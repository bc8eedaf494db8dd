"""How long the next step may wait."""

from __future__ import annotations

import pytest

from sidecar.core.life.delays import honour_s


@pytest.mark.parametrize(("drain_s", "seconds"), [(0, 300), (100, 300), (101, 303), (600, 1_800)])
def test_cull_is_honoured_within_five_minutes_or_three_drains(drain_s: float, seconds: float) -> None:
    assert honour_s(drain_s) == seconds
