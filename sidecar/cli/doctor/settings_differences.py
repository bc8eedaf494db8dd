"""The settings that differ between the sidecars of a service, with their values as an operator writes them.

A sidecar writes its settings into the store as the text of ``core.fleet.fleet_settings.FleetSettings``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from sidecar.config import shares
from sidecar.core.fleet.fleet_settings import OFF, FleetSettings, Share
from sidecar.core.types import US_PER_S
from sidecar.runlock import durations

_SETTINGS: Final[tuple[tuple[str, Callable[[FleetSettings], str]], ...]] = (
    ("ARBITER_BUDGET_STRATEGY", lambda settings: settings.strategy),
    ("ARBITER_BUDGET", lambda settings: _share(settings.capacity)),
    ("ARBITER_BUDGET_WINDOW", lambda settings: _duration(settings.window_us)),
    ("ARBITER_MIN_HEALTHY", lambda settings: _share(settings.min_healthy)),
    ("ARBITER_SPACING", lambda settings: _duration(settings.spacing_us)),
    ("ARBITER_TRIAL", lambda settings: _switch(is_on=settings.trial)),
    ("ARBITER_PROBATION", lambda settings: _duration(settings.probation_us)),
    ("ARBITER_REFUND", lambda settings: _switch(is_on=settings.refund_max != OFF)),
    ("ARBITER_AFTER_DATA_LOSS", lambda settings: "wait" if settings.after_loss_wait else "continue"),
    ("ARBITER_BEAT_INTERVAL", lambda settings: _duration(settings.beat_us)),
    # The settings of an earlier version do not tell it.
    ("ARBITER_ERROR_LIMIT", lambda settings: str(settings.error_limit or "")),
)
"""Each setting that should be the same in all sidecars of a service, and its value as an operator writes it."""

ADDRESS: Final = "ARBITER_REDIS_URL"
"""The setting whose values no sidecar writes down, only a digest of them."""


def settings_of(text: str) -> dict[str, str]:
    """The settings in one text with their values; those that this version does not know are left out."""
    settings = FleetSettings.load(text)
    return {} if settings is None else {name: value for name, written in _SETTINGS if (value := written(settings))}


def differences(texts: Sequence[str]) -> str:
    """The settings that differ with all of their values; a text that this version cannot read, as it is."""
    read = [(text, FleetSettings.load(text)) for text in texts]
    settings = [each for _, each in read if each is not None]
    unread = [text for text, each in read if each is None]
    # If no known setting differs, the texts come from a newer version.
    return "; ".join([*_differing(settings), *unread]) or "  ".join(texts)


def _differing(every: Sequence[FleetSettings]) -> list[str]:
    values = {name: dict.fromkeys(filter(None, map(written, every))) for name, written in _SETTINGS}
    differing = [f"{name} is {' and '.join(several)}" for name, several in values.items() if len(several) > 1]
    addresses = {settings.servers for settings in every}
    if len(addresses) > 1:
        differing.append(f"{ADDRESS} names {len(addresses)} different addresses")
    return differing


def _share(text: str) -> str:
    amount, is_part = Share.load(text)
    return shares.write(amount, is_part=is_part)


def _duration(us: int) -> str:
    return durations.write(us / US_PER_S)


def _switch(*, is_on: bool) -> str:
    return "on" if is_on else "off"
