"""The budget of one sidecar over a store in memory that can fail, with a list of members that a test sets."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from harness.claims import WINDOW_ONLY, S
from harness.server_group import Server
from sidecar.core.claims import Fleet, Unknown
from sidecar.core.fleet.members import MemberList
from sidecar.store.budget import FleetBudget


class StubBudget(FleetBudget):
    """``member_list`` returns ``known``, and the holds of the store. ``wall`` gives Unix seconds."""

    def __init__(self, wall: Callable[[], float], instance: str = "a") -> None:
        self.server = Server(lambda: round(wall() * S))
        self.known = MemberList(Fleet(0), 0)
        super().__init__(self.server, WINDOW_ONLY, rng=Random(0), clock=wall, wall=wall, instance=instance)

    async def member_list(self) -> MemberList | Unknown:
        answer = await super().member_list()
        return answer if isinstance(answer, Unknown) else self.known._replace(holds=(*self.known.holds, *answer.holds))
