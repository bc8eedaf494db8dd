"""``fleet --json`` names the settings of each instance, and not the texts that the store keeps."""

from __future__ import annotations

from typing import Any

from sidecar.cli.fleet_command import _with_settings
from sidecar.core.fleet.fleet_settings import FleetSettings
from sidecar.core.fleet.members import digest_of

TEN, FIVE = FleetSettings().dump(), FleetSettings(capacity="5").dump()


def _seen(*policies: str, **told: str | None) -> dict[str, Any]:
    members = [
        {"instance": name, "about": None if text is None else {"settings": digest_of(text) if text else ""}}
        for name, text in told.items()
    ]
    return {"service": "app", "policies": list(policies), "members": members}


def _budgets(seen: dict[str, Any]) -> dict[str, str | None]:
    shown = _with_settings(seen)
    assert "policies" not in shown
    return {name: settings and settings["ARBITER_BUDGET"] for name, settings in shown["settings"].items()}


def test_each_instance_has_its_own_settings() -> None:
    assert _budgets(_seen(TEN, FIVE, a=TEN, b=FIVE, c="", d=None)) == {"a": "10", "b": "5", "c": None, "d": None}


def test_instance_that_has_not_told_its_settings_has_those_of_all_others() -> None:
    assert _budgets(_seen(TEN, a=TEN, b="", c=None)) == {"a": "10", "b": "10", "c": "10"}


def test_answer_without_the_fleet_has_none() -> None:
    assert _with_settings({"service": "app", "error": "timeout"}) == {
        "service": "app",
        "error": "timeout",
        "settings": {},
    }
