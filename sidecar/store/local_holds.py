"""Holds of operators that the store could not take: they count in this sidecar, and end with its process."""

from __future__ import annotations

from collections.abc import Callable

from sidecar.core.types import Denied, Hold


class LocalHolds:
    """``wall`` gives Unix seconds; ``instance`` is the container of this sidecar."""

    def __init__(self, wall: Callable[[], float], instance: str) -> None:
        self._wall = wall
        self._instance = instance
        self._holds: dict[str, Hold] = {}

    @property
    def in_force(self) -> Hold | None:
        """The local hold of the service, else that of the instance, while it lasts."""
        return self.of("") or self.of(self._instance)

    def of(self, instance: str) -> Hold | None:
        """The local hold of this instance, ``""`` for the service, while it lasts."""
        hold = self._holds.get(instance)
        if hold is not None and hold.until <= self._wall():
            del self._holds[instance]
            return None
        return hold

    def covers(self, instance: str) -> bool:
        """Whether a hold of ``instance``, ``""`` for the service, holds this sidecar."""
        return instance in ("", self._instance)

    def begin(self, instance: str, author: str, reason: str, for_s: float) -> Hold | None:
        """Hold this sidecar for ``for_s`` seconds; None if the hold is of another instance."""
        if not self.covers(instance):
            return None
        self._holds[instance] = Hold(author, reason, self._wall() + for_s, instance)
        return self._holds[instance]

    def end(self, hold: Hold | None) -> None:
        """End this hold, unless another one has replaced it."""
        if hold is not None and self._holds.get(hold.instance) is hold:
            del self._holds[hold.instance]

    def refusal(self) -> Denied | None:
        """The answer to a claim under a local hold; None without one."""
        hold = self.in_force
        return Denied("hold", 0, 0, hold.until - self._wall(), hold=hold) if hold else None
