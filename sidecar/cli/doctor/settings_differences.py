"""The settings that differ between the sidecars of a service, with their values as an operator writes them.

A sidecar writes its settings into the store as the text of ``core.fleet.fleet_settings.FleetSettings``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sidecar.config import syntax
from sidecar.core.fleet.fleet_settings import OFF, FleetSettings, Share
from sidecar.core.types import US_PER_S
from sidecar.runlock import durations


def _share(text: str) -> str:
    amount, is_part = Share.load(text)
    return syntax.write_share(amount, is_part=is_part)


def _duration(us: int) -> str:
    return durations.write(us / US_PER_S)


def _one_of(on: str, off: str) -> Callable[[object], str]:
    return lambda value: on if value else off


_SETTINGS: Final[Mapping[str, tuple[str, Callable[[Any], str]]]] = {
    "strategy": ("ARBITER_BUDGET_STRATEGY", str),
    "capacity": ("ARBITER_BUDGET", _share),
    "window_us": ("ARBITER_BUDGET_WINDOW", _duration),
    "min_healthy": ("ARBITER_MIN_HEALTHY", _share),
    "spacing_us": ("ARBITER_SPACING", _duration),
    "trial": ("ARBITER_TRIAL", _one_of("on", "off")),
    "probation_us": ("ARBITER_PROBATION", _duration),
    "refund_max": ("ARBITER_REFUND", lambda most: "off" if most == OFF else "on"),
    "after_loss_wait": ("ARBITER_AFTER_DATA_LOSS", _one_of("wait", "continue")),
    "beat_us": ("ARBITER_BEAT_INTERVAL", _duration),
    # The settings of an earlier version do not tell it.
    "error_limit": ("ARBITER_ERROR_LIMIT", lambda limit: str(limit or "")),
}
"""Field -> the setting that should be the same in all sidecars of a service, and how an operator writes its value."""

ADDRESS: Final = "ARBITER_REDIS_URL"
"""The setting whose values no sidecar writes down, only a digest of them."""


def settings_of(text: str) -> dict[str, str]:
    """The settings in one text with their values; those that this version does not know are left out."""
    settings = FleetSettings.load(text)
    if settings is None:
        return {}
    values = {name: write(getattr(settings, field)) for field, (name, write) in _SETTINGS.items()}
    return {name: value for name, value in values.items() if value}


def differences(texts: Sequence[str]) -> str:
    """The settings that differ with all of their values; a text that this version cannot read, as it is."""
    read = [each for text in texts if (each := settings_of(text))]
    unread = [text for text in texts if not settings_of(text)]
    values = {name: dict.fromkeys(filter(None, (each.get(name) for each in read))) for name, _ in _SETTINGS.values()}
    differing = [f"{name} is {' and '.join(several)}" for name, several in values.items() if len(several) > 1]
    addresses = {settings.servers for settings in map(FleetSettings.load, texts) if settings is not None}
    if len(addresses) > 1:
        differing.append(f"{ADDRESS} names {len(addresses)} different addresses")
    # If no known setting differs, the texts come from a newer version.
    return "; ".join([*differing, *unread]) or "  ".join(texts)
