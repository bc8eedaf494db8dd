"""What a beat says of the container: to the fleet, which counts it, and to people."""

from __future__ import annotations

from typing import Final

from sidecar.core.claims import Beat, Presence
from sidecar.core.fleet.common_trait import NO_TRAITS, Traits
from sidecar.core.fleet.members import About
from sidecar.core.life.container import Container
from sidecar.core.life.detectors import RATIO_MIN_REQUESTS
from sidecar.core.life.snapshot import Snapshot
from sidecar.core.types import Evidence

MILLION: Final = 1_000_000


def beat_of(snapshot: Snapshot, *, first: bool, about: str) -> Beat:
    """The beat about this container; ``first``: the store has not answered a beat of this sidecar yet."""
    container, presence = snapshot.container, snapshot.container.presence
    is_down = presence is Presence.DOWN
    lease = container.lease if is_down else ""
    claim_id = container.latch.claim_id if container.latch else container.claim_id
    has_cause = (is_down or presence is Presence.SUSPECT) and not lease
    return Beat(
        container.instance,
        container.life,
        presence,
        (container.cause if has_cause else "") or "unknown",
        claim_id if is_down else "",
        first=first,
        lease=lease,
        about=about,
        errors=snapshot.evidence.errors,
        ratio=_ratio(snapshot.evidence),
        refused=is_refused(container),
        identity=container.identity.holder,
    )


def _ratio(evidence: Evidence) -> int | None:
    """Failed requests per million; None if there were too few requests."""
    if evidence.requests < RATIO_MIN_REQUESTS:
        return None
    return round(MILLION * evidence.failed / evidence.requests)


def is_refused(container: Container) -> bool:
    """Whether it is a suspect that was denied a token."""
    return bool(container.refused) and container.presence is Presence.SUSPECT


def about(snapshot: Snapshot, limit: int, version: str, settings: str = "", traits: Traits = NO_TRAITS) -> About:
    """Describe the container for people. In shadow mode it has, like a beat, what enforce mode would report."""
    container = snapshot.container
    return About(
        container.state,
        round(snapshot.unix_of(container.since)),
        container.life,
        snapshot.would_share,
        snapshot.evidence.errors,
        limit,
        version,
        round(snapshot.unix_of(container.born)),
        settings,
        traits.node,
        container.app_version or traits.version,
    )
