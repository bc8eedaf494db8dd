"""Who of the fleet is there: the alive, the wanting among them, and what they suffer from.

Times are microseconds of the bucket's clock. An instance that is not heard of for a while is no member any more.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

SHARED_BY: Final = 3
SHARED_PART: Final = 800
"""So many thousandths of the wanting have to name a kind for it to be their common cause, and three at least."""


class Roster:
    """The members of one fleet."""

    def __init__(self) -> None:
        self.alive: dict[str, int] = {}
        self.kinds: dict[str, str] = {}
        self.causes: dict[str, int] = {}
        self.departed: dict[str, int] = {}
        self.about: dict[str, str] = {}

    @property
    def wanting(self) -> int:
        """How many want to be culled."""
        return len(self.kinds)

    def heard(self, instance: str, now_us: int, kind: str | None) -> None:
        """Note a sign of life of one that serves; with a ``kind`` of errors it wants to be culled."""
        self.alive[instance] = now_us
        if kind is None:
            self._content(instance)
        elif self.kinds.get(instance) != kind:
            self._content(instance)
            self.kinds[instance] = kind
            self.causes[kind] = self.causes.get(kind, 0) + 1

    def left(self, instance: str) -> None:
        """Strike one off: culled, gone, or not heard of."""
        self.alive.pop(instance, None)
        self._content(instance)

    def departs(self, instance: str, now_us: int, window_us: int) -> None:
        """Strike off one that may come back: it said goodbye, or was not heard of."""
        self.left(instance)
        self.departed = {one: at for one, at in self.departed.items() if now_us - at <= window_us}
        self.departed[instance] = now_us
        self.about.pop(instance, None)

    def tells(self, instance: str, about: str, missing: Collection[str]) -> None:
        """Keep what is told of a member, which is alive or ``missing``: of so many, and no more."""
        if instance not in self.alive and instance not in missing:
            return
        self.about[instance] = about
        if len(self.about) > len(self.alive) + len(missing):
            self.about = {one: told for one, told in self.about.items() if one in self.alive or one in missing}

    def is_known(self, instance: str, now_us: int, window_us: int) -> bool:
        """Whether one of this name has been here within the window: it replaces nobody else by coming back."""
        if instance in self.alive:
            return True
        return instance in self.departed and now_us - self.departed[instance] <= window_us

    def silent(self, now_us: int, expiry_us: int) -> list[str]:
        """Those who were not heard of for longer than ``expiry_us``."""
        return [instance for instance, at_us in self.alive.items() if now_us - at_us > expiry_us]

    def cause(self) -> str:
        """The kind that the wanting share, or nothing."""
        kind = max(self.causes, key=lambda kind: (self.causes[kind], kind), default="")
        shared = self.causes.get(kind, 0)
        return kind if shared >= SHARED_BY and shared * 1000 >= SHARED_PART * self.wanting else ""

    def _content(self, instance: str) -> None:
        kind = self.kinds.pop(instance, None)
        if kind is None:
            return
        self.causes[kind] -= 1
        if not self.causes[kind]:
            del self.causes[kind]
