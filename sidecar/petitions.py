"""What is asked of the bucket for the hall: each question a task, each answer a message, and every failure unclear."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

from sidecar.core.events import Answered, Leased
from sidecar.core.words import Answer, Claim, Denied, Granted, Lease, Unknown
from sidecar.inbox import Message
from sidecar.journal import Journal

Asked = TypeVar("Asked", Claim, Lease)

JOURNAL_WAIT_S: Final = 1.0
MOMENT_S: Final = 0.05
LIMIT_S: Final = 30.0
"""A bucket bounds its answers itself; this is for one that does not, so that nothing is outstanding for ever."""


class Bucket(Protocol):
    """What the hall needs of a budget: an answer as a value, and never an exception for a failure."""

    async def claim(self, claim: Claim) -> Answer:
        """Ask for a token."""

    async def retire(self, lease: Lease) -> Answer:
        """Ask for the lease of a retirement."""

    async def resign(self, instance: str, holder: str) -> bool | Unknown:
        """Give a lease back; whether it was held."""


class Petitions:
    """Asks ``bucket``, once what the journal has to keep of the asking is kept, and hands the answer to ``put``.

    ``wall`` gives Unix seconds, ``clock`` seconds by which an answer is timed, ``jitter`` a number from 0 to 1.
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
        self._lease_in_hand = asyncio.Lock()

    async def claim(self, claim: Claim, granted: Callable[[Claim], Awaitable[float]]) -> None:
        """Ask for a token; ``granted`` has its time before a grant is told, and says how many seconds it took.

        After more than a moment the bucket is asked again, which costs no token: somebody may have set a hold.
        """
        answer = await self._answer(self._bucket.claim, claim)
        if isinstance(answer, Granted) and await granted(claim) > MOMENT_S:
            again = await self._answer(self._bucket.claim, claim)
            answer = again if isinstance(again, Denied) else answer
        self._put(Answered(claim.claim_id, answer, self._wall(), self._jitter()))

    async def lease(self, lease: Lease) -> None:
        """Ask for a lease, once the last one is given back: or what is granted now would be given back."""
        async with self._lease_in_hand:
            asked_at = self._clock()
            answer = await self._answer(self._bucket.retire, lease)
        self._put(Leased(lease.holder, answer, self._wall(), self._jitter(), self._clock() - asked_at))

    async def resign(self, instance: str, holder: str) -> None:
        """Give a lease back. Who cannot be told of it frees the slot when its time is over."""
        async with self._lease_in_hand, asyncio.timeout(LIMIT_S):
            await self._bucket.resign(instance, holder)

    async def _answer(self, ask: Callable[[Asked], Awaitable[Answer]], asked: Asked) -> Answer:
        try:
            await self._journal.settled(JOURNAL_WAIT_S)
            async with asyncio.timeout(LIMIT_S):
                return await ask(asked)
        except Exception as error:  # noqa: BLE001 - a failing budget is an unclear answer, never an exception
            self._on_failure(error)
            return Unknown("internal")
