from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.runlock import durations


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        *(("10", 10.0), ("10s", 10.0), ("500ms", 0.5), ("1.5s", 1.5), (".5s", 0.5), ("1.5m", 90.0), ("1h", 3600.0)),
        *(("7d", 604800.0), ("0", 0.0), (" 7s ", 7.0), (10, 10.0), (0.25, 0.25)),
    ],
)
def test_text_and_numbers_are_read_as_seconds(written: object, seconds: float) -> None:
    assert durations.parse(written) == seconds


@pytest.mark.parametrize(
    ("complaint", "written"),
    [
        *(("negative", written) for written in ("-1s", -0.5)),
        *(("not a duration", written) for written in ("", "s", "10 s", "10S", "1w", "1m30s", "1e3", "1.", "nan")),
        *(("not a duration", written) for written in ("\u0663s", True, None, [1])),
        *(("finite", written) for written in (math.nan, math.inf, 10**400, "9" * 400)),
    ],
)
def test_anything_else_is_refused_with_its_reason(written: object, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        durations.parse(written)


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        *((0.0, "0s"), (0.01, "10ms"), (1.0, "1s"), (1.5, "1.5s"), (60.0, "60s"), (90.0, "90s")),
        *((600.0, "10m"), (3600.0, "60m"), (86400.0, "24h")),
    ],
)
def test_durations_are_written_in_the_unit_a_person_would_take(seconds: float, written: str) -> None:
    assert durations.write(seconds) == written


@given(st.integers(min_value=0, max_value=86_400_000))
def test_what_is_written_is_read_back_alike(milliseconds: int) -> None:
    assert durations.parse(durations.write(milliseconds / 1000)) == milliseconds / 1000


@given(st.text() | st.floats() | st.integers() | st.booleans() | st.none())
def test_whatever_comes_is_a_finite_duration_or_a_value_error(value: object) -> None:
    try:
        seconds = durations.parse(value)
    except ValueError:
        return
    assert math.isfinite(seconds)
    assert seconds >= 0
