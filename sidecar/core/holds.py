"""The freezes that people set: of the whole service under ``""``, of one instance under its name."""

from __future__ import annotations

from sidecar.core.words import US_PER_S, Hold

Held = tuple[int, Hold]
"""Until when, in microseconds of the bucket's clock, and what a person is told of it."""


class Holds:
    """All holds of one bucket. One that is over is none, also before anybody has struck it off."""

    def __init__(self) -> None:
        self._holds: dict[str, Held] = {}

    def put(self, instance: str, author: str, reason: str, until_us: int) -> Hold:
        """Set a hold in the place of the one before."""
        hold = Hold(author, reason, until_us / US_PER_S, instance)
        self._holds[instance] = (until_us, hold)
        return hold

    def release(self, instance: str) -> bool:
        """End a hold; whether there was one."""
        return self._holds.pop(instance, None) is not None

    def strike_off(self, now_us: int) -> None:
        """Forget those that are over."""
        self._holds = {one: held for one, held in self._holds.items() if held[0] > now_us}

    def on(self, instance: str, now_us: int) -> Held | None:
        """The hold that is on this instance, that of the service first."""
        holds = (self._holds.get(scope) for scope in ("", instance))
        return next((held for held in holds if held and held[0] > now_us), None)

    def every(self, now_us: int) -> tuple[Hold, ...]:
        """All that are in force, the service's first, then by name."""
        return tuple(hold for _, (until_us, hold) in sorted(self._holds.items()) if until_us > now_us)
