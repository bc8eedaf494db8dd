"""The settings that differ between the sidecars of a service, with their values as an operator writes them.

A policy is the text of ``core.fleet.terms.FleetSettings`` that a sidecar writes into the store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from sidecar.config import shares
from sidecar.core.fleet.fleet_settings import OFF, FleetSettings, Share
from sidecar.core.types import US_PER_S
from sidecar.runlock import durations

_SETTINGS: Final[tuple[tuple[str, Callable[[FleetSettings], str]], ...]] = (
    ("ARBITER_BUDGET_STRATEGY", lambda terms: terms.strategy),
    ("ARBITER_BUDGET", lambda terms: _share(terms.capacity)),
    ("ARBITER_BUDGET_WINDOW", lambda terms: _duration(terms.window_us)),
    ("ARBITER_MIN_HEALTHY", lambda terms: _share(terms.min_healthy)),
    ("ARBITER_SPACING", lambda terms: _duration(terms.spacing_us)),
    ("ARBITER_TRIAL", lambda terms: _switch(is_on=terms.trial)),
    ("ARBITER_PROBATION", lambda terms: _duration(terms.probation_us)),
    ("ARBITER_REFUND", lambda terms: _switch(is_on=terms.refund_max != OFF)),
    ("ARBITER_AFTER_DATA_LOSS", lambda terms: "wait" if terms.after_loss_wait else "continue"),
    ("ARBITER_BEAT_INTERVAL", lambda terms: _duration(terms.beat_us)),
    # The terms of an earlier version do not tell it.
    ("ARBITER_ERROR_LIMIT", lambda terms: str(terms.error_limit or "")),
)
"""Each setting that should be the same in all sidecars of a service, and its value as an operator writes it."""


def settings_of(text: str) -> dict[str, str]:
    """The settings in one text with their values; those that this version does not know are left out."""
    terms = FleetSettings.load(text)
    return {} if terms is None else {name: value for name, written in _SETTINGS if (value := written(terms))}


def differences(texts: Sequence[str]) -> str:
    """The settings that differ with all of their values; a text that this version cannot read, as it is."""
    read = [(text, FleetSettings.load(text)) for text in texts]
    terms = [each for _, each in read if each is not None]
    unread = [text for text, each in read if each is None]
    # If no known setting differs, the texts come from a newer version.
    return "; ".join([*_differing(terms), *unread]) or "  ".join(texts)


def _differing(every: Sequence[FleetSettings]) -> list[str]:
    values = {name: dict.fromkeys(filter(None, map(written, every))) for name, written in _SETTINGS}
    differing = [f"{name} is {' and '.join(several)}" for name, several in values.items() if len(several) > 1]
    addresses = {terms.servers for terms in every}
    if len(addresses) > 1:
        differing.append(f"ARBITER_REDIS_URL names {len(addresses)} different addresses")
    return differing


def _share(text: str) -> str:
    amount, is_part = Share.load(text)
    return shares.write(amount, is_part=is_part)


def _duration(us: int) -> str:
    return durations.write(us / US_PER_S)


def _switch(*, is_on: bool) -> str:
    return "on" if is_on else "off"
