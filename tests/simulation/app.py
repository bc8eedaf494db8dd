"""One container of the fleet: what share of its requests fails, why, and whether a restart would cure it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class SimulatedApp:
    """The container in one place of the fleet, through all its lives.

    ``stuck``: this part of its requests fails until it is restarted, ``stuck_by`` says what did that. ``flaw``: this
    part fails whatever one does, because of its release, its neighbours or its dependency. ``mute``: nobody reports
    what fails here. ``life`` counts the incarnations, ``born`` is when this one began. ``weight``: the percent that the
    balancer was told. ``load``: how busy it says that it is. ``deaf``: nobody restarts it when it is down.
    """

    place: int
    instance: str
    life: int = 0
    serving: bool = True
    weight: float = 100
    stuck: float = 0.0
    stuck_kind: str = ""
    stuck_by: str = ""
    flaw: float = 0.0
    flaw_kind: str = ""
    born: float = 0.0
    mute: bool = False
    load: float | None = None
    deaf: bool = False

    @property
    def app_start(self) -> str:
        """The name of this life."""
        return f"{self.instance}.{self.life}"

    def failing(self, everywhere: float) -> float:
        """The part of its requests that fails while ``everywhere`` of everybody's does."""
        return max(self.stuck, self.flaw, everywhere)

    def kind(self, everywhere: float, kind: str) -> str:
        """What most of its errors are of, while everybody's are of ``kind``."""
        if self.stuck >= max(self.flaw, everywhere):
            return self.stuck_kind
        return self.flaw_kind if self.flaw >= everywhere else kind
