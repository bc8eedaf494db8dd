"""The rollout from shadow to enforce: which containers of a service already enforce.

A container's place, 0 to 99, comes from its name alone, so that every process finds the same place. The containers
whose place is below ``enforce_percent`` enforce: a higher percentage only adds containers. By hand:

    echo $(( 0x$(printf %s "$SERVICE/$INSTANCE" | sha256sum | cut -c1-8) * 100 >> 32 ))
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final, Literal

Mode = Literal["enforce", "shadow"]

ENFORCE: Final = "enforce"
SHADOW: Final = "shadow"
ALL: Final = 100

ALONE: Final[dict[Mode, str]] = {
    ENFORCE: "there is no shared store (ARBITER_REDIS_URL): this sidecar enforces with a budget of its own, and "
    "nothing limits how many containers of a fleet are culled together",
    SHADOW: "there is no shared store (ARBITER_REDIS_URL): this sidecar culls nothing, and reports what it would "
    "cull with a budget of its own",
}
"""The meaning of each mode without a shared store, as a sentence."""


def place(service: str, instance: str) -> int:
    """Return the container's place in the rollout, 0 to 99."""
    digest = sha256(f"{service}/{instance}".encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big") * ALL >> 32


def own_mode(mode: Mode, service: str, instance: str, percent: int) -> Mode:
    """Return the mode of this container: the service has ``mode``, and ``percent`` of its containers enforce."""
    return ENFORCE if mode == ENFORCE and place(service, instance) < percent else SHADOW
