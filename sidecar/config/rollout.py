"""The way from shadow to enforce: which of a service's containers enforce already.

A container's place, 0 to 99, comes from its name alone, so that every process finds the same. Those whose place is
below the percentage enforce: to raise it only adds containers. By hand:

    echo $(( 0x$(printf %s "$SERVICE/$INSTANCE" | sha256sum | cut -c1-8) * 100 >> 32 ))
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from sidecar.config.settings import Settings

ENFORCE: Final = "enforce"
SHADOW: Final = "shadow"
ALL: Final = 100


def place(service: str, instance: str) -> int:
    """Where on the way this container stands, 0 to 99."""
    digest = sha256(f"{service}/{instance}".encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big") * ALL >> 32


def is_enforced(service: str, instance: str, percent: int) -> bool:
    """Whether this container enforces when ``percent`` of them do."""
    return place(service, instance) < percent


def mode(settings: Settings) -> str:
    """What this container does: ``settings.mode`` is what was set for all of them."""
    if settings.mode == ENFORCE and not is_enforced(settings.service, settings.instance, settings.enforce_percent):
        return SHADOW
    return settings.mode


def is_parted(settings: Settings) -> bool:
    """Whether there may be containers of the service that do what this one does not."""
    return mode(settings) == SHADOW or settings.enforce_percent < ALL


def effective(settings: Settings) -> Settings:
    """The settings with the mode of this container."""
    own = mode(settings)
    if own == settings.mode:
        return settings
    if isinstance(settings, tuple):  # as the daemon has them, without pydantic
        return cast("Settings", settings._replace(mode=own))
    return settings.model_copy(update={"mode": own})
