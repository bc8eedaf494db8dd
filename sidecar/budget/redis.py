"""The bucket that a fleet shares: each claim is one Lua script in Redis, and anything unclear is ``Unknown``.

Nothing is tried twice here: who got no clear answer asks again with the same claim id, and a grant whose reply was
lost comes back as a replay.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import datetime
from hashlib import sha1
from pathlib import Path
from typing import Final

from redis.exceptions import InvalidResponse, NoScriptError

from sidecar.budget.link import Link, error_word
from sidecar.core.grants import US_PER_S, Quota
from sidecar.core.words import Answer, Denied, Granted, Unknown

_SCRIPTS: Final = {"log": "claim.lua", "previous": "claim.lua", "fixed": "claim_fixed.lua"}
_HOUR_US: Final = 3600 * US_PER_S


class RedisBudget:
    """Tokens of the bucket under ``<prefix>:grants``, or with ``fixed`` of the article's ``<fixed_key>:<index>``.

    A claim or a warm-up takes ``timeout_s`` seconds at most, connecting included, and one waits for the other.
    ``local_time`` is the wall clock after which ``fixed`` numbers its windows within the hour, as the article does;
    everything else goes by the server's time.

    The Redis user needs ``evalsha eval script|exists script|load`` and the commands that the scripts call. Raises
    ValueError for a URL that cannot be used, for an unknown strategy, and for a ``fixed`` window that is not whole
    seconds which divide the hour, or longer than half of it: its counter would be used again before it has expired.
    """

    def __init__(
        self,
        url: str,
        *,
        strategy: str,
        quota: Quota,
        prefix: str,
        fixed_key: str,
        timeout_s: float,
        local_time: Callable[[], datetime] = datetime.now,
    ) -> None:
        if strategy not in _SCRIPTS:
            raise ValueError(f"no such strategy: {strategy}")
        if strategy == "fixed" and not _fits_the_hour(quota.window_us):
            raise ValueError("a fixed window has to be whole seconds that divide the hour, and at most half of it")
        self._link = Link(url, timeout_s)
        self._turn = asyncio.Lock()
        self._timeout_s = timeout_s
        self._script = Path(__file__).with_name(_SCRIPTS[strategy]).read_bytes()
        self._sha = sha1(self._script, usedforsecurity=False).hexdigest()
        self._strategy = strategy
        self._quota = quota
        self._fixed_key = fixed_key
        self._grants = f"{prefix}:grants"
        self._limits = (str(quota.capacity), str(quota.window_us))
        self._local_time = local_time

    async def claim(self, claim_id: str) -> Answer:
        """Granted, denied, or unknown with one of the words in ``core.sentences.UNKNOWN``."""
        try:
            async with asyncio.timeout(self._timeout_s), self._turn:
                return await self._run(self._arguments(claim_id))
        except Exception as error:  # noqa: BLE001 - an unclear answer is a value, whatever made it unclear
            return Unknown(error_word(error))

    async def warm(self) -> Unknown | None:
        """Connect and bring the script there, so that a claim costs one round trip; None when that went well."""
        try:
            async with asyncio.timeout(self._timeout_s), self._turn:
                await self._load()
        except Exception as error:  # noqa: BLE001 - as in claim
            return Unknown(error_word(error))
        return None

    async def aclose(self) -> None:
        """End the connection, within the time-out."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(self._timeout_s):
                await self._link.aclose()

    async def _load(self) -> None:
        """Ask whether the server has the script before sending it: older ones hand each SCRIPT LOAD to replicas."""
        if not await self._link.ask(_flag, "SCRIPT", "EXISTS", self._sha):
            await self._link.ask(self._loaded, "SCRIPT", "LOAD", self._script)

    def _loaded(self, reply: object) -> None:
        if reply != self._sha.encode():
            raise InvalidResponse("not the digest of our script")

    async def _run(self, arguments: tuple[str, ...]) -> Answer:
        try:
            return await self._link.ask(self._answer, "EVALSHA", self._sha, *arguments)
        except NoScriptError:
            return await self._link.ask(self._answer, "EVAL", self._script, *arguments)

    def _arguments(self, claim_id: str) -> tuple[str, ...]:
        """How many keys, the keys, and the arguments, as the head of each script has them."""
        if self._strategy != "fixed":
            return ("1", self._grants, self._strategy, claim_id, *self._limits)
        index, left_us = self._local_window()
        return ("2", f"{self._fixed_key}:{index}", self._grants, claim_id, *self._limits, str(left_us))

    def _local_window(self) -> tuple[int, int]:
        """Number of the window within the local hour, and the microseconds that are left of it."""
        now = self._local_time()
        into_hour_us = (now.minute * 60 + now.second) * US_PER_S + now.microsecond
        index, elapsed_us = divmod(into_hour_us, self._quota.window_us)
        return index, self._quota.window_us - elapsed_us

    def _answer(self, reply: object) -> Answer:
        """Read a reply that is exactly as the scripts write it."""
        match reply:
            case [1, b"granted" | b"replayed" as word, int(used), self._quota.capacity, 0]:
                return Granted(used, self._quota.capacity, replayed=word == b"replayed")
            case [0, b"window", int(used), self._quota.capacity, int(wait_us)] if wait_us > 0:
                return Denied("window", used, self._quota.capacity, wait_us / US_PER_S)
        raise InvalidResponse("not an answer to a claim")


def _fits_the_hour(window_us: int) -> bool:
    return window_us % US_PER_S == 0 and _HOUR_US % window_us == 0 and window_us <= _HOUR_US // 2


def _flag(reply: object) -> bool:
    match reply:
        case [0 | 1 as flag]:
            return bool(flag)
    raise InvalidResponse("not one flag")
