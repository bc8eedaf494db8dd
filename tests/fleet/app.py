"""One container of a fleet of the laboratory: the part of its requests that fails, the cause, and what ends that."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class App:
    """The container in one place of the fleet, through all its incarnations.

    ``stuck``: this part of the requests fails until a restart; ``stuck_by``: the incident that caused it, and
    ``stuck_at``: when it began. ``flaw``: this part fails before and after restarts, because of the release, the
    neighbours or a dependency. ``mute``: the failures are not reported. ``life``: the number of the incarnation, which
    began at ``born``. ``weight``: percent at the balancer. ``load``: the reported load.
    ``deaf``: the scheduler does not restart it.
    """

    place: int
    instance: str
    life: int = 0
    serving: bool = True
    weight: float = 100
    stuck: float = 0.0
    stuck_kind: str = ""
    stuck_by: str = ""
    stuck_at: float = 0.0
    flaw: float = 0.0
    flaw_kind: str = ""
    born: float = 0.0
    mute: bool = False
    load: float | None = None
    deaf: bool = False

    @property
    def app_start(self) -> str:
        """The id of this incarnation."""
        return f"{self.instance}.{self.life}"

    def failing(self, everywhere: float) -> float:
        """The part of its requests that fails while the part ``everywhere`` fails in all containers."""
        return max(self.stuck, self.flaw, everywhere)

    def kind(self, everywhere: float, kind: str) -> str:
        """The most frequent kind of its errors, while those of an outage are of ``kind``."""
        if self.stuck >= max(self.flaw, everywhere):
            return self.stuck_kind
        return self.flaw_kind if self.flaw >= everywhere else kind
