"""A service and its sidecars as their store knows them, without daemons."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from bench.crowd import recorded_commands
from sidecar.core.fleet.fleet_settings import FleetSettings
from sidecar.core.types import US_PER_S, Answer, Beat, Claim, Presence, Unknown
from sidecar.store.budget import FleetBudget
from sidecar.store.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

BEAT_S: Final = 10
TIMEOUT_S: Final = 5.0
# No member is removed between two rounds, and a new service may cull at once.
TERMS: Final = FleetSettings(beat_us=300 * US_PER_S, trial=False, after_loss_wait=False)
_LIFE: Final = "boot-2026-11-20T12:00:00Z"


class Service:
    """``members`` sidecars of the service ``name`` in the Redis at ``url``; the first one has beaten once."""

    def __init__(self, url: str, name: str, members: int, *, trial: bool = False) -> None:
        self.name = name
        self.prefix = f"{{ha:default/{name}}}"
        self.members = members
        self._url = url
        self._terms = replace(TERMS, trial=trial)
        asyncio.run(self._begin())

    def budget(self) -> FleetBudget:
        """The budget of one sidecar, with its own connection."""
        return FleetBudget(self._store(), self._terms, rng=Random(), clock=time.monotonic)

    def beats(self, presence: Presence = Presence.WELL, members: Iterable[int] | None = None) -> list[bytes]:
        """The command of a beat of each of these members (all by default)."""
        every = range(self.members) if members is None else members
        return self._commands(lambda store, member: _told(store, self._terms, self.beat(member, presence)), every)

    def reads(self) -> list[bytes]:
        """The command with which each member begins a claim; a denied claim needs no other."""
        window_us, expiry_us = self._terms.window_us, self._terms.expiry_us
        return self._commands(
            lambda store, member: store.read(_instance(member), window_us=window_us, expiry_us=expiry_us),
            range(self.members),
        )

    def beat(self, member: int, presence: Presence = Presence.WELL, *, first: bool = False) -> Beat:
        """A beat of one member."""
        kind = "redis" if presence is Presence.SUSPECT else "unknown"
        return Beat(_instance(member), _LIFE, presence, kind, first=first)

    def claim(self, member: int) -> Claim:
        """A claim of one member, with names as long as those of Nomad."""
        instance = _instance(member)
        return Claim(f"default/{self.name}/{instance}/{_LIFE}", instance, _LIFE, "redis")

    async def answers(self, members: Iterable[int]) -> list[Answer]:
        """The answers to the claims of these members, one after the other."""
        budget = self.budget()
        try:
            return [await budget.claim(self.claim(member)) for member in members]
        finally:
            await budget.aclose()

    async def _begin(self) -> None:
        budget = self.budget()
        answer = await budget.beat(self.beat(0, first=True))
        await budget.aclose()
        if isinstance(answer, Unknown):
            raise RuntimeError(f"not a fleet: {answer}")  # noqa: TRY004 - the answer is wrong, not its type

    def _store(self) -> RedisStore:
        return RedisStore(self._url, prefix=self.prefix, timeout_s=TIMEOUT_S)

    def _commands(self, call: Callable[[RedisStore, int], Awaitable[object]], members: Iterable[int]) -> list[bytes]:
        store = self._store()
        return recorded_commands(store, (partial(call, store, member) for member in members))


def _told(store: RedisStore, terms: FleetSettings, beat: Beat) -> Awaitable[object]:
    return store.beat(beat, settings=terms.dump(), window_us=terms.window_us, expiry_us=terms.expiry_us)


def _instance(member: int) -> str:
    return f"0f1e2d3c-4b5a-6978-8796-{member:012x}"
