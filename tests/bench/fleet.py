"""A service and its sidecars, as their shared bucket knows them; no daemon runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from bench.crowd import overheard
from sidecar.budget.redis import RedisBudget
from sidecar.core.terms import Terms
from sidecar.core.words import US_PER_S, Answer, Beat, Claim, Presence, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterable

BEAT_S: Final = 10
TIMEOUT_S: Final = 5.0
# Nobody is struck off between two rounds of a benchmark, and a service need not grow old before it culls.
TERMS: Final = Terms(beat_us=300 * US_PER_S, lost_is_empty=False)
_LIFE: Final = "boot-2026-11-20T12:00:00Z"


class Service:
    """``members`` sidecars of the service ``name`` in the Redis at ``url``, where the first one has beaten once."""

    def __init__(self, url: str, name: str, members: int) -> None:
        self.name = name
        self.prefix = f"{{ha:default/{name}}}"
        self.members = members
        self.budget = RedisBudget(url, terms=TERMS, prefix=self.prefix, fixed_key="none", timeout_s=TIMEOUT_S)
        asyncio.run(self._begin())

    def beats(self, presence: Presence = Presence.WELL, members: Iterable[int] | None = None) -> list[bytes]:
        """What each of these sends to beat; all, if nothing is said."""
        every = range(self.members) if members is None else members
        return overheard(self.budget, (_beat(member, presence) for member in every))

    def claims(self) -> list[bytes]:
        """What each of them sends to claim."""
        return overheard(self.budget, map(self.claim, range(self.members)))

    def claim(self, member: int) -> Claim:
        """Of one of them; as long as Nomad makes it."""
        instance = _instance(member)
        return Claim(f"default/{self.name}/{instance}/{_LIFE}", instance, _LIFE, "redis")

    async def answers(self, members: Iterable[int]) -> list[Answer]:
        """The bucket's answers to the claims of these, one after the other."""
        try:
            return [await self.budget.claim(self.claim(member)) for member in members]
        finally:
            await self.budget.aclose()

    async def _begin(self) -> None:
        answer = await self.budget.beat(_beat(0, Presence.WELL, first=True))
        await self.budget.aclose()
        if isinstance(answer, Unknown):
            raise RuntimeError(f"no fleet, but {answer}")  # noqa: TRY004 - the answer is wrong, not its type


def _instance(member: int) -> str:
    return f"0f1e2d3c-4b5a-6978-8796-{member:012x}"


def _beat(member: int, presence: Presence, *, first: bool = False) -> Beat:
    kind = "redis" if presence is Presence.WANTS else "unknown"
    return Beat(_instance(member), _LIFE, presence, kind, first=first)
