from __future__ import annotations

from dataclasses import fields, replace

import pytest

from sidecar import settings
from sidecar.core.terms import Share, Terms
from sidecar.doctor import policies

ONE = Terms()
OTHER = Terms(
    strategy="previous",
    capacity=Share(200, is_part=True),
    window_us=90_000_000,
    min_healthy=Share(3),
    never_last=False,
    spacing_us=500_000,
    brake=0,
    probation_us=120_000_000,
    useless_after=0,
    earn_max=7,
    lost_is_empty=False,
    beat_us=1_000_000,
    index=1,
    servers=2,
)


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("strategy", "ARBITER_BUDGET_STRATEGY is log and previous"),
        ("capacity", "ARBITER_BUDGET is 10 and 20%"),
        ("window_us", "ARBITER_BUDGET_WINDOW is 10m and 90s"),
        ("min_healthy", "ARBITER_MIN_HEALTHY is 50% and 3"),
        ("never_last", "ARBITER_NEVER_LAST is true and false"),
        ("spacing_us", "ARBITER_SPACING is 0s and 500ms"),
        ("brake", "ARBITER_BRAKE is 0.5 and 0"),
        ("probation_us", "ARBITER_PROBATION is 60s and 2m"),
        ("useless_after", "ARBITER_USELESS_AFTER is 3 and 0"),
        ("earn_max", "ARBITER_EARN_MAX is off (ARBITER_EARN) and 7"),
        ("lost_is_empty", "ARBITER_LOST_MEMORY is empty and full"),
        ("beat_us", "ARBITER_BEAT is 10s and 1s"),
        ("index", "the server's place in ARBITER_REDIS_URL is 1 and 2"),
        ("servers", "servers in ARBITER_REDIS_URL is 1 and 2"),
    ],
)
def test_field_that_differs_is_told_by_its_setting(field: str, said: str) -> None:
    assert policies.differences([str(ONE), str(replace(ONE, **{field: getattr(OTHER, field)}))]) == said


def test_every_field_that_differs_is_told() -> None:
    assert policies.differences([str(ONE), str(OTHER)]).count("; ") + 1 == len(fields(Terms))


def test_three_values_are_told_once_each() -> None:
    texts = [str(replace(ONE, capacity=Share(count))) for count in (1, 2, 3)]
    assert policies.differences([*texts, str(replace(ONE, capacity=Share(1), brake=0))]) == (
        "ARBITER_BUDGET is 1 and 2 and 3; ARBITER_BRAKE is 0.5 and 0"
    )


def test_settings_are_called_as_they_are() -> None:
    told = policies.differences([str(ONE), str(OTHER)]).replace("(", "").replace(")", "").split()
    assert {word for word in told if word.startswith("ARBITER_")} <= {name for name, _, _ in settings.table()}


@pytest.mark.parametrize("other", ["", "log|10", f"{ONE}|1", str(ONE).replace("|500|", "|half|")])
def test_terms_of_another_version_are_shown_as_they_are(other: str) -> None:
    assert policies.differences([str(ONE), other]) == f"{ONE}  {other}"
