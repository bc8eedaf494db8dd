"""``fleet --json`` names the settings of each instance, and not the texts that the store keeps."""

from __future__ import annotations

from typing import Any

import pytest

from sidecar.cli.fleet_command import _with_settings
from sidecar.core.fleet.fleet_settings import FleetSettings
from sidecar.core.fleet.members import digest_of

TEN, FIVE = FleetSettings().dump(), FleetSettings(capacity="5").dump()


def _seen(*settings: str, **told: str | None) -> dict[str, Any]:
    members = [
        {"instance": name, "about": None if text is None else {"settings": digest_of(text) if text else ""}}
        for name, text in told.items()
    ]
    return {"service": "app", "settings": list(settings), "members": members}


@pytest.mark.parametrize(
    ("seen", "budgets"),
    [
        (_seen(TEN, FIVE, a=TEN, b=FIVE, c="", d=None), {"a": "10", "b": "5", "c": None, "d": None}),
        (_seen(TEN, a=TEN, b="", c=None), {"a": "10", "b": "10", "c": "10"}),
        ({"service": "app", "error": "timeout"}, {}),
    ],
    ids=["its own", "those of all others", "the fleet is not known"],
)
def test_each_instance_has_its_settings(seen: dict[str, Any], budgets: dict[str, str | None]) -> None:
    shown = _with_settings(seen)
    assert {name: settings and settings["ARBITER_BUDGET"] for name, settings in shown["settings"].items()} == budgets
