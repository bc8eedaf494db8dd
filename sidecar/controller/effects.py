"""Carries out the effects that take time: claims, leases, returned tokens, and saving what has to survive.

Each effect is a task and gets all it needs when it starts. Each answer is a message in the inbox, and a failure is an
unclear answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, Protocol, TypeVar

from sidecar.controller.inbox import LatchWritten, Message
from sidecar.controller.journal import Journal, SavedIncarnation
from sidecar.controller.runtime import Runtime
from sidecar.core.claims import Answer, Claim, Denied, Granted, GrantRequest, LeaseRequest, Unknown, request_id
from sidecar.core.explain import reasons
from sidecar.core.life.container import Container
from sidecar.core.life.events import (
    Answered,
    ClearWindow,
    Effect,
    GiveBack,
    SaveIncarnation,
)
from sidecar.core.life.grant_request import unknown_delay
from sidecar.core.types import CLAIM_JITTER, Latch, Policy

CullHook = Callable[[Claim, str], Awaitable[str]]
"""``(claim, reason) -> output``: inspects the container before a cull, within a bounded time."""

T = TypeVar("T")

JOURNAL_WAIT_S: Final = 1.0
LATCH_WAIT_S: Final = 0.25
"""How long readers do not see a grant because its latch is not on disk yet: a disk may hang."""

LIMIT_S: Final = 30.0
"""Time limit for a budget that does not bound its answers itself, so that no request stays outstanding for ever."""

MOST_RETURNS: Final = 30
"""Maximum number of attempts to give back a token or a lease. They take a quarter of an hour."""


class TokenBudget(Protocol):
    """What the controller needs of a budget. A failure is an ``Unknown``, never an exception."""

    async def claim(self, claim: Claim) -> Answer:
        """Ask for a token."""

    async def retire(self, lease: LeaseRequest) -> Answer:
        """Ask for the lease of a retirement."""

    async def give_back(self, instance: str, holder: str) -> bool | Unknown:
        """Give back a lease, or the token of a claim; return whether it was in use."""


class EffectRunner:
    """Carries out effects while it is ``open``, and hands each answer to ``put``.

    ``hook`` captures evidence between a grant and the drain.
    """

    def __init__(
        self,
        budget: TokenBudget,
        journal: Journal,
        put: Callable[[Message], None],
        runtime: Runtime,
        *,
        policy: Policy,
        hook: CullHook | None = None,
    ) -> None:
        self.unwritten_latch: Latch | None = None
        """That of a grant that is not on disk yet. ``LatchWritten`` is put when the wait for it is over."""
        self._budget = budget
        self._journal = journal
        self._put = put
        self._policy = policy
        self._hook = hook
        self._clock, self._wall, self._rng, self._on_failure = runtime
        self._claim: asyncio.Task[None] | None = None
        self._returning = asyncio.Lock()
        self._unreturned: dict[str, str] = {}  # holders of tokens and leases, with their instances
        self._tasks: asyncio.TaskGroup | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Accept effects; at the end wait for those that run, or cancel them with the caller."""
        async with asyncio.TaskGroup() as self._tasks:
            yield

    def carry_out(self, effect: Effect, container: Container, socket: str) -> None:
        """Begin to carry out an effect of this container's step; ``socket``: the one at the app's port, if known."""
        match effect:
            case Claim():
                self._claim = self._start(self._claim_token, effect, self._hook_reason(container))
            case LeaseRequest():
                self._start(self._request_lease, effect)
            case GiveBack(holder):
                self._start_to_give_back(container.instance, holder)
            case SaveIncarnation():
                born = self._wall() - (self._clock() - container.born)
                self._save(SavedIncarnation.of(container, born, socket))
            case ClearWindow():
                if self._claim is not None:
                    self._claim.cancel()  # a token for an incarnation that has ended is of no use

    def _hook_reason(self, container: Container) -> str:
        """The reason that the hook is called with; empty in shadow mode, where it is not called."""
        return (reasons.verdict(container.verdict) or reasons.ORDERED) if self._policy.enforce else ""

    def _start_to_give_back(self, instance: str, holder: str) -> None:
        """Give back a token or a lease until the store confirms it; before that its holder does not ask again."""
        self._unreturned[holder] = instance
        self._start(self._give_back, holder)

    def _save(self, saved: SavedIncarnation) -> None:
        """Save what has to survive this process. A latch is unwritten for ``LATCH_WAIT_S`` at most."""
        if saved.latch is None or not self._journal.keeps:
            self._start(self._journal.save, saved)
        else:
            self.unwritten_latch = saved.latch
            self._start(self._write_latch, saved)

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

    async def _write_latch(self, saved: SavedIncarnation) -> None:
        saving = self._start(self._journal.save, saved)
        ends_at = self._clock() + LATCH_WAIT_S
        try:
            await asyncio.wait({saving}, timeout=LATCH_WAIT_S)
            # A save returns early if an earlier one, which waits for the disk, will write what it has to save.
            await self._journal.settled(max(0.0, ends_at - self._clock()))
        finally:
            if self.unwritten_latch == saved.latch:
                self.unwritten_latch = None
            self._put(LatchWritten())

    async def _claim_token(self, claim: Claim, hook_reason: str) -> None:
        """Claim, and after the hook claim again: a person may have set a hold meanwhile. That costs no second token."""
        ask, capture = partial(self._budget.claim, claim), None
        answer, took_s = await self._answer(claim, ask)
        if isinstance(answer, Granted) and hook_reason and self._hook is not None:
            capture = await self._captured(self._hook, claim, hook_reason)
            again, _ = await self._answer(claim, ask)
            if isinstance(again, Denied):
                self._start_to_give_back(claim.instance, claim.claim_id)
                answer = again
        self._put(Answered(claim, answer, self._wall(), self._rng.random(), took_s, capture))

    async def _captured(self, hook: CullHook, claim: Claim, reason: str) -> str | None:
        """The output of the hook. A failure of the hook is reported and does not stop the cull."""
        try:
            return await hook(claim, reason)
        except Exception as error:  # noqa: BLE001 - no failure of the hook may stop a cull
            self._on_failure(error)
            return None

    async def _request_lease(self, lease: LeaseRequest) -> None:
        answer, took_s = await self._answer(lease, partial(self._budget.retire, lease))
        self._put(Answered(lease, answer, self._wall(), self._rng.random(), took_s))

    async def _answer(self, request: GrantRequest, ask: Callable[[], Awaitable[Answer]]) -> tuple[Answer, float]:
        """The answer, and the seconds that it took.

        First the journal has to be written, and what was granted under this id given back: it would be replayed.
        """

        async def ask_last() -> Answer:
            if failure := await self._returned(request_id(request)):
                return failure
            await self._journal.settled(JOURNAL_WAIT_S)
            return await ask()

        began = self._clock()
        return await self._bounded(ask_last()), self._clock() - began

    async def _bounded(self, answer: Awaitable[T]) -> T | Unknown:
        """The answer within ``LIMIT_S``; a failure is an unclear answer, never an exception."""
        try:
            async with asyncio.timeout(LIMIT_S):
                return await answer
        except Exception as error:  # noqa: BLE001 - a failing budget must not end the sidecar
            self._on_failure(error)
            return Unknown("internal")

    async def _give_back(self, holder: str) -> None:
        for tries in range(MOST_RETURNS):
            if await self._returned(holder) is None:
                return
            await asyncio.sleep(unknown_delay(tries) * (1 + CLAIM_JITTER * self._rng.random()))
        self._unreturned.pop(holder, None)

    async def _returned(self, holder: str) -> Unknown | None:
        """None once this holder has nothing to give back; else why the store has not confirmed the return."""
        async with self._returning:
            if holder not in self._unreturned:
                return None
            answer = await self._bounded(self._budget.give_back(self._unreturned[holder], holder))
            if isinstance(answer, Unknown):
                return answer
            del self._unreturned[holder]
            return None
