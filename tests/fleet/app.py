"""One container of the laboratory: the part of its requests that fails, the cause, and what ends that."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class App:
    """The container in one place of the fleet, through all its incarnations."""

    place: int
    instance: str
    life: int = 0
    """The number of its incarnation, and the second in which it began:"""

    born: float = 0.0
    serving: bool = True
    weight: float = 100
    """Percent at the balancer."""

    stuck: float = 0.0
    """This part of the requests fails until a restart, with errors of this kind, because of this incident:"""

    stuck_kind: str = ""
    stuck_by: str = ""

    flaw: float = 0.0
    """This part fails before and after restarts, because of the release, the neighbours or a dependency."""

    flaw_kind: str = ""
    is_retired: bool = False
    deaf: bool = False
    """Whether the scheduler does not restart it."""

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
