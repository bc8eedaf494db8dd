from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest

from sidecar.cli.doctor import settings_differences
from sidecar.config import shown
from sidecar.core.fleet.fleet_settings import FleetSettings

ONE = FleetSettings(refund_max=0, servers="3f2a", error_limit=5)
OTHER = FleetSettings(
    strategy="previous",
    capacity="200p",
    window_us=90_000_000,
    min_healthy="3",
    spacing_us=500_000,
    trial=False,
    probation_us=120_000_000,
    refund_max=-1,
    after_loss_wait=False,
    beat_us=1_000_000,
    servers="77c0",
    error_limit=50,
)


def _differences(*terms: FleetSettings) -> str:
    return settings_differences.differences([one.dump() for one in terms])


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("strategy", "ARBITER_BUDGET_STRATEGY is log and previous"),
        ("capacity", "ARBITER_BUDGET is 10 and 20%"),
        ("window_us", "ARBITER_BUDGET_WINDOW is 10m and 90s"),
        ("min_healthy", "ARBITER_MIN_HEALTHY is 50% and 3"),
        ("spacing_us", "ARBITER_SPACING is 0s and 500ms"),
        ("trial", "ARBITER_TRIAL is on and off"),
        ("probation_us", "ARBITER_PROBATION is 60s and 2m"),
        ("refund_max", "ARBITER_REFUND is on and off"),
        ("after_loss_wait", "ARBITER_AFTER_DATA_LOSS is wait and continue"),
        ("beat_us", "ARBITER_BEAT_INTERVAL is 10s and 1s"),
        ("error_limit", "ARBITER_ERROR_LIMIT is 5 and 50"),
        ("servers", "ARBITER_REDIS_URL names 2 different addresses"),
    ],
)
def test_field_that_differs_is_named_by_its_setting(field: str, said: str) -> None:
    assert _differences(ONE, replace(ONE, **{field: getattr(OTHER, field)})) == said


def test_every_field_that_differs_is_named() -> None:
    assert _differences(ONE, OTHER).count("; ") + 1 == len(fields(FleetSettings))


def test_settings_are_called_as_they_are() -> None:
    words = _differences(ONE, OTHER, replace(ONE, refund_max=30)).split()
    assert {word for word in words if word.startswith("ARBITER_")} <= {name for name, _, _ in shown.table()}


def test_fields_of_another_version_are_no_obstacle() -> None:
    older = json.loads(replace(ONE, capacity="5").dump())
    del older["trial"], older["f"]
    newer = {**json.loads(ONE.dump()), "mood": "bad"}
    assert settings_differences.differences([json.dumps(older), json.dumps(newer)]) == "ARBITER_BUDGET is 5 and 10"


def test_settings_that_differ_in_nothing_that_is_known_are_shown_as_they_are() -> None:
    texts = [ONE.dump(), json.dumps({**json.loads(ONE.dump()), "mood": "bad"})]
    assert settings_differences.differences(texts) == "  ".join(texts)


@pytest.mark.parametrize("other", ["", "log|10|500p", "null", '{"strategy": "leaky"}', '{"capacity": "half"}'])
def test_text_that_cannot_be_read_is_shown_as_it_is_beside_what_differs(other: str) -> None:
    texts = [ONE.dump(), other, replace(ONE, capacity="5").dump()]
    assert settings_differences.differences(texts) == f"ARBITER_BUDGET is 10 and 5; {other}"
