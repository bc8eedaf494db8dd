"""What the controller asks of others without waiting: claims and leases of the budget, and what the journal keeps.

Each is a task, each answer of the bucket a message, and every failure an unclear answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, Protocol, TypeVar

from sidecar.controller.inbox import Message
from sidecar.controller.journal import Journal, Memory
from sidecar.core.life.delays import JITTER, unknown_delay
from sidecar.core.life.events import Answered, Leased
from sidecar.core.types import Answer, Claim, Denied, Granted, Lease, Unknown

Asked = TypeVar("Asked", Claim, Lease)

JOURNAL_WAIT_S: Final = 1.0
MOMENT_S: Final = 0.05
LIMIT_S: Final = 30.0
"""A bucket bounds its answers itself; this is for one that does not, so that nothing is outstanding for ever."""

MOST_RETURNS: Final = 30
"""So often a token is given back that nobody confirms: for a quarter of an hour. Then its window is mostly over."""


class Bucket(Protocol):
    """What the controller needs of a budget: an answer as a value, and never an exception for a failure."""

    async def claim(self, claim: Claim) -> Answer:
        """Ask for a token."""

    async def retire(self, lease: Lease) -> Answer:
        """Ask for the lease of a retirement."""

    async def resign(self, instance: str, holder: str) -> bool | Unknown:
        """Give a lease, or the token of a claim, back; whether it was held."""


class EffectRunner:
    """Asks ``bucket``, once what the journal has to keep of the asking is kept, and hands the answer to ``put``.

    ``wall`` gives Unix seconds, ``clock`` seconds by which an answer is timed, ``jitter`` a number from 0 to 1. What
    is asked is asked while it is ``open``; ``on_failure`` hears of every exception, and nobody else does.
    """

    def __init__(
        self,
        bucket: Bucket,
        journal: Journal,
        put: Callable[[Message], None],
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
        jitter: Callable[[], float],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._bucket = bucket
        self._journal = journal
        self._put = put
        self._clock = clock
        self._wall = wall
        self._jitter = jitter
        self._on_failure = on_failure
        self._asked_at = 0.0
        self._claim: asyncio.Task[None] | None = None
        self._lease_in_hand = asyncio.Lock()
        self._token_in_hand = asyncio.Lock()
        self._unreturned: dict[str, str] = {}
        self._tasks: asyncio.TaskGroup | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Take petitions; those that are under way at the end are waited for, or cancelled with who takes them."""
        async with asyncio.TaskGroup() as self._tasks:
            yield

    def claim(self, claim: Claim, now: float, granted: Callable[[Claim], Awaitable[float]]) -> None:
        """Ask for a token; ``granted`` has its time before a grant is told, and says how many seconds it took."""
        self._asked_at = now
        self._claim = self._start(self._ask, claim, granted)

    def lease(self, lease: Lease, now: float) -> None:
        """Ask for the lease of a retirement."""
        self._asked_at = now
        self._start(self._ask_lease, lease)

    def resign(self, instance: str, holder: str) -> None:
        """Give a lease back. Who cannot be told of it frees the slot when its time is over."""
        self._start(self._resign, instance, holder)

    def return_token(self, instance: str, claim_id: str) -> None:
        """Give back the token of this claim, until that is confirmed; before that the claim is not made again."""
        self._unreturned[claim_id] = instance
        self._start(self._return, claim_id)

    def remember(self, memory: Memory) -> None:
        """Have the journal keep what must survive us."""
        self._start(self._journal.save, memory)

    def withdraw(self) -> None:
        """Ask for a token no longer: one for an incarnation that has ended helps nobody."""
        if self._claim is not None:
            self._claim.cancel()

    def took_s(self, now: float) -> float:
        """How long the bucket took to answer what was asked last, if that is answered ``now``."""
        return now - self._asked_at

    # -- tasks ------------------------------------------------------------------------------------------------

    def _start(self, work: Callable[..., Awaitable[None]], *arguments: object) -> asyncio.Task[None]:
        if self._tasks is None:
            raise RuntimeError("the controller is not running")
        return self._tasks.create_task(self._contained(work, *arguments))

    async def _contained(self, work: Callable[..., Awaitable[None]], *arguments: object) -> None:
        try:
            await work(*arguments)
        except Exception as error:  # noqa: BLE001 - one bad task must not end the sidecar, as the group would
            self._on_failure(error)

    async def _ask(self, claim: Claim, granted: Callable[[Claim], Awaitable[float]]) -> None:
        """After more than a moment the bucket is asked again, which costs no token: somebody may have set a hold."""
        answer = await self._returned(claim.claim_id) or await self._answer(self._bucket.claim, claim)
        if isinstance(answer, Granted):
            granted_s = await granted(claim)
            self._asked_at += granted_s  # the bucket did not take that long
            if granted_s > MOMENT_S:
                again = await self._answer(self._bucket.claim, claim)
                if isinstance(again, Denied):
                    self.return_token(claim.instance, claim.claim_id)
                    answer = again
        self._put(Answered(claim.claim_id, answer, self._wall(), self._jitter()))

    async def _ask_lease(self, lease: Lease) -> None:
        """Once the last one is given back: or what is granted now would be given back."""
        async with self._lease_in_hand:
            asked_at = self._clock()
            answer = await self._answer(self._bucket.retire, lease)
        self._put(Leased(lease.holder, answer, self._wall(), self._jitter(), self._clock() - asked_at))

    async def _resign(self, instance: str, holder: str) -> None:
        async with self._lease_in_hand, asyncio.timeout(LIMIT_S):
            await self._bucket.resign(instance, holder)

    async def _return(self, claim_id: str) -> None:
        for tries in range(MOST_RETURNS):
            if await self._returned(claim_id) is None:
                return
            await asyncio.sleep(unknown_delay(tries) * (1 + JITTER * self._jitter()))
        self._unreturned.pop(claim_id, None)

    async def _returned(self, claim_id: str) -> Unknown | None:
        """None once nothing has to be given back of this claim; else why that is not confirmed."""
        async with self._token_in_hand:
            if claim_id not in self._unreturned:
                return None
            try:
                async with asyncio.timeout(LIMIT_S):
                    answer = await self._bucket.resign(self._unreturned[claim_id], claim_id)
            except Exception as error:  # noqa: BLE001 - as in _answer
                self._on_failure(error)
                return Unknown("internal")
            if isinstance(answer, Unknown):
                return answer
            del self._unreturned[claim_id]
            return None

    async def _answer(self, ask: Callable[[Asked], Awaitable[Answer]], asked: Asked) -> Answer:
        try:
            await self._journal.settled(JOURNAL_WAIT_S)
            async with asyncio.timeout(LIMIT_S):
                return await ask(asked)
        except Exception as error:  # noqa: BLE001 - a failing budget is an unclear answer, never an exception
            self._on_failure(error)
            return Unknown("internal")
