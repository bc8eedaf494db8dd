"""A budget of tokens as small as can be: what it takes to see where a client leads, and what becomes of a claim."""

from __future__ import annotations

import asyncio
from hashlib import sha1
from typing import TYPE_CHECKING, Final

from sidecar.store.protocol import StoreError
from sidecar.store.redis_client import RedisClient

if TYPE_CHECKING:
    from collections.abc import Awaitable

FRESH, REPLAYED, SECOND = "granted 1", "replayed 1", "granted 2"

KEY: Final = "{ha:default/app}:tokens"


class _Script:
    text: Final = b"return { redis.call('SADD', KEYS[1], ARGV[1]), redis.call('SCARD', KEYS[1]) }"
    sha: Final = sha1(text, usedforsecurity=False).hexdigest()


class TokenClient:
    """Claims through one ``RedisClient``, each within ``timeout_s``.

    ``timeout_s`` may be made shorter once no server answers; the time that each host gets stays as it was.
    """

    def __init__(self, url: str, password_file: str = "", timeout_s: float = 5.0) -> None:
        self.redis = RedisClient(url, timeout_s, password_file, KEY)
        self.timeout_s = timeout_s

    async def aclose(self) -> None:
        """End the connection."""
        await self.redis.aclose()

    async def claim(self, claim_id: str, *more_keys: str) -> str:
        """``granted 1`` (so many have been), ``replayed 1``, or the word for an answer that is unknown."""
        keys = (KEY, *more_keys)
        return await self._in_time(self.redis.run(_answer, _Script, keys, [claim_id]))  # type: ignore[arg-type]

    async def ping(self) -> str:
        """``PONG``, or the word for what went wrong; a command without a key."""
        return await self._in_time(self.redis.ask(lambda reply: str(reply.decode()), "PING"))

    async def _in_time(self, call: Awaitable[str]) -> str:
        try:
            async with asyncio.timeout(self.timeout_s):
                return await call
        except StoreError as error:
            return error.word
        except TimeoutError:
            return "timeout"


def _answer(reply: object) -> str:
    match reply:
        case [0 | 1 as new, int(count)]:
            return f"{'granted' if new else 'replayed'} {count}"
    raise ValueError("not an answer to a claim")
