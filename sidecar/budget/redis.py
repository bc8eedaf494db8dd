"""The bucket that a fleet shares: each call is one Lua script in Redis, and anything unclear is ``Unknown``.

Nothing is tried twice here: who got no clear answer asks again with the same claim id, and a grant whose reply was
lost comes back as a replay.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar

from redis.exceptions import InvalidResponse, NoScriptError

from sidecar.budget import replies, scripts
from sidecar.budget.access import Access
from sidecar.budget.events import Events
from sidecar.budget.link import NO_FILES, Link, error_word
from sidecar.budget.replies import written
from sidecar.budget.scripts import Script
from sidecar.core.terms import STRATEGIES, Terms
from sidecar.core.words import US_PER_S, Answer, Beat, Claim, Entry, Fleet, Hold, Lease, Roll, Unknown

T = TypeVar("T")

MOST_MEMBERS: Final = 1000
"""So many members a roll shows."""

_KEYS: Final = (
    *("grants", "earned", "policy", "state", "alive", "kinds", "causes"),
    *("departed", "missing", "down", "culls", "trials", "replaced", "useless", "hold"),
    *("leases", "holders", "members", "events"),
)
_HOUR_US: Final = 3600 * US_PER_S


class RedisBudget:
    """The fleet's bucket under ``<prefix>:*``, and with ``fixed`` also the article's ``<fixed_key>:<index>``.

    A call takes ``timeout_s`` seconds at most, connecting included, and one waits for the other. ``local_time`` is the
    wall clock after which ``fixed`` numbers its windows within the hour, as the article does; everything else goes by
    the server's time.

    The Redis user needs ``evalsha eval script|exists script|load`` and the commands that the scripts call. Raises
    ValueError for a URL that cannot be used, for an unknown strategy, and for a ``fixed`` window that is not whole
    seconds which divide the hour, or longer than half of it: its counter would be used again before it has expired.
    """

    def __init__(
        self,
        url: str,
        *,
        terms: Terms,
        prefix: str,
        fixed_key: str,
        timeout_s: float,
        access: Access = NO_FILES,
        local_time: Callable[[], datetime] = datetime.now,
        events_max: int = 10_000,
    ) -> None:
        if terms.strategy not in STRATEGIES:
            raise ValueError(f"no such strategy: {terms.strategy}")
        if terms.strategy == "fixed" and not _fits_the_hour(terms.window_us):
            raise ValueError("a fixed window has to be whole seconds that divide the hour, and at most half of it")
        self._link = Link(url, timeout_s, access)
        self._events = Events(self._link, prefix, events_max)
        self._events_max = str(events_max)
        self._turn = asyncio.Lock()
        self._timeout_s = timeout_s
        self._claim_script, self._beat_script = scripts.read()
        self._are_loaded = False
        self._terms = terms
        self._terms_text = written(str(terms))
        self._keys = tuple(written(f"{prefix}:{key}") for key in _KEYS)
        self._fixed_key = fixed_key
        self._local_time = local_time
        self._mark = replies.UNMARKED
        self._losses = 0
        self._former_losses = 0

    async def claim(self, claim: Claim) -> Answer:
        """Granted, denied, or unknown with one of the words in ``core.sentences.UNKNOWN``."""
        return await self._in_turn(self._claim(claim))

    async def retire(self, lease: Lease) -> Answer:
        """As for a claim; asked again under the same holder word it is granted again."""
        return await self._in_turn(self._retire(lease))

    async def resign(self, instance: str, holder: str) -> bool | Unknown:
        """Whether the lease was this holder's, or unknown as for a claim."""
        return await self._in_turn(self._run_rarely(scripts.read_resign, replies.was_held, instance, holder))

    async def beat(self, beat: Beat) -> Fleet | Unknown:
        """The fleet, or unknown as for a claim; sees to it that a claim then costs one round trip."""
        return await self._in_turn(self._beat(beat))

    async def hold(self, instance: str, author: str, reason: str, for_s: float) -> Hold | Unknown:
        """The hold as it is now in force, or unknown as for a claim."""
        return await self._in_turn(self._hold(instance, author, reason, round(for_s * US_PER_S)))

    async def release(self, instance: str) -> bool | Unknown:
        """Whether there was a hold, or unknown as for a claim."""
        return await self._in_turn(self._run_rarely(scripts.read_release, replies.was_held, instance))

    async def roll(self) -> Roll | Unknown:
        """At most a thousand members of the fleet, or unknown as for a claim."""
        read = partial(replies.roll, most=MOST_MEMBERS)
        return await self._in_turn(self._run(scripts.read_roll(), read, more_keys=self._counter()[0]))

    async def note(self, entries: Sequence[Entry]) -> int | Unknown:
        """How many of the entries were new to the ledger, or unknown as for a claim."""
        return await self._in_turn(self._events.note(entries))

    async def entries(self, since: float, after: str, most: int) -> Sequence[Entry] | Unknown:
        """Of the ledger what ``Events.entries`` says, or unknown as for a claim."""
        return await self._in_turn(self._events.entries(since, after, most))

    async def first(self, word: str, for_s: float) -> bool | Unknown:
        """Whether nobody has said the word within its time, or unknown as for a claim."""
        return await self._in_turn(self._events.first(word, for_s))

    async def aclose(self) -> None:
        """End the connection, within the time-out."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(self._timeout_s):
                await self._link.aclose()

    async def _in_turn(self, call: Coroutine[Any, Any, T]) -> T | Unknown:
        try:
            async with asyncio.timeout(self._timeout_s), self._turn:
                return await call
        except Exception as error:  # noqa: BLE001 - an unclear answer is a value, whatever made it unclear
            self._are_loaded = False  # the next connection may lead to another server
            return Unknown(error_word(error))
        finally:
            call.close()

    async def _claim(self, claim: Claim) -> Answer:
        about = (claim.instance, claim.incarnation, claim.kind, claim.claim_id)
        keys, left = self._counter()
        answer, mark = await self._run(self._claim_script, replies.answer, *about, *left, more_keys=keys)
        self._remember(mark)
        return answer

    async def _retire(self, lease: Lease) -> Answer:
        about = (lease.instance, lease.incarnation, lease.holder, lease.slots, str(round(lease.timeout_s * US_PER_S)))
        answer, mark = await self._run_rarely(scripts.read_retire, replies.lease, *about)
        self._remember(mark)
        return answer

    async def _beat(self, beat: Beat) -> Fleet:
        about = (beat.instance, beat.incarnation, beat.kind, beat.claim_id, beat.presence)
        rest = (str(int(beat.first)), beat.lease, beat.about)
        key = self._counter()[0]
        fleet, mark = await self._run(self._beat_script, replies.fleet, *about, *rest, more_keys=key)
        self._remember(mark)
        self._losses = fleet.losses
        if not self._are_loaded:
            await self._load()
            self._are_loaded = True
        return replace(fleet, losses=self._former_losses + self._losses)

    def _remember(self, mark: replies.Mark) -> None:
        """Keep the mark for the next call. A bucket born anew has forgotten how often it lost its memory."""
        if self._mark != replies.UNMARKED and mark[0] != self._mark[0]:
            self._former_losses += self._losses
            self._losses = 0
        self._mark = mark

    async def _hold(self, instance: str, author: str, reason: str, for_us: int) -> Hold:
        about = (instance, author, reason, str(for_us))
        until_us = await self._run_rarely(scripts.read_hold, replies.until_us, *about)
        return Hold(author, reason, until_us / US_PER_S, instance)

    async def _load(self) -> None:
        """Ask which scripts the server has before sending any: older ones hand each SCRIPT LOAD to replicas."""
        both = (self._claim_script, self._beat_script)
        read = partial(replies.flags, count=len(both))
        there = await self._link.ask(read, "SCRIPT", "EXISTS", *(script.sha for script in both))
        for script, is_there in zip(both, there, strict=True):
            if not is_there:
                await self._link.ask(partial(_loaded, script), "SCRIPT", "LOAD", script.text)

    async def _run_rarely(self, script: Callable[[], Script], read: Callable[[object], T], *about: str) -> T:
        return await self._run(script(), read, *about)

    async def _run(
        self, script: Script, read: Callable[[object], T], *about: str, more_keys: tuple[str, ...] = ()
    ) -> T:
        keys = (*self._keys, *map(written, more_keys)) if more_keys else self._keys
        known = map(str, self._mark)
        told: tuple[str | bytes, ...] = (self._terms_text, *known, *map(written, about), self._events_max)
        arguments: list[str | bytes] = [str(len(keys)), *keys, *told]
        try:
            return await self._link.ask(read, "EVALSHA", script.sha, *arguments)
        except NoScriptError:
            self._are_loaded = False
            return await self._link.ask(read, "EVAL", script.text, *arguments)

    def _counter(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The key of the article's counter, and the microseconds that are left of its window; else nothing."""
        if self._terms.strategy != "fixed":
            return (), ()
        now = self._local_time()
        into_hour_us = (now.minute * 60 + now.second) * US_PER_S + now.microsecond
        index, elapsed_us = divmod(into_hour_us, self._terms.window_us)
        return (f"{self._fixed_key}:{index}",), (str(self._terms.window_us - elapsed_us),)


def _fits_the_hour(window_us: int) -> bool:
    return window_us % US_PER_S == 0 and _HOUR_US % window_us == 0 and window_us <= _HOUR_US // 2


def _loaded(script: Script, reply: object) -> None:
    if reply != script.sha.encode():
        raise InvalidResponse("not the digest of our script")
