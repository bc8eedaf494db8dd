"""A bucket of tokens as small as can be: what it takes to see where a link leads, and what becomes of a claim."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from hashlib import sha1
from typing import Any, Final, Self

from redis.exceptions import InvalidResponse, NoScriptError, RedisError

from sidecar.store.access import Access
from sidecar.store.link import Link, error_word

FRESH, REPLAYED, SECOND = "granted 1", "replayed 1", "granted 2"

KEY: Final = "{ha:default/app}:tokens"
_SCRIPT: Final = b"return { redis.call('SADD', KEYS[1], ARGV[1]), redis.call('SCARD', KEYS[1]) }"
_SHA: Final = sha1(_SCRIPT, usedforsecurity=False).hexdigest()


class Asking:
    """Claims by one link, each within ``timeout_s``, in the way of the real bucket: EVALSHA, and EVAL if need be.

    ``timeout_s`` may be made shorter once nobody answers any more; what the link allows to each place stays as it was.
    """

    def __init__(self, url: str, timeout_s: float = 5.0, access: Access | None = None) -> None:
        self.link = Link(url, timeout_s, access) if access else Link(url, timeout_s)
        self.timeout_s = timeout_s

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.link.aclose()

    async def claim(self, claim_id: str, *more_keys: str) -> str:
        """``granted 1`` (so many have been), ``replayed 1``, or the word for an answer that is unknown."""
        return await self._in_time(self._claim(str(1 + len(more_keys)), KEY, *more_keys, claim_id))

    async def load(self) -> str:
        """Bring the script there, which is a command without a key: ``loaded``, or the word for what went wrong."""
        return await self._in_time(self.link.ask(lambda _: "loaded", "SCRIPT", "LOAD", _SCRIPT))

    async def _in_time(self, call: Coroutine[Any, Any, str]) -> str:
        try:
            async with asyncio.timeout(self.timeout_s):
                return await call
        except Exception as error:  # noqa: BLE001 - as the real bucket does
            return error_word(error)

    async def _claim(self, *arguments: str) -> str:
        try:
            return await self.link.ask(_answer, "EVALSHA", _SHA, *arguments)
        except NoScriptError:
            return await self.link.ask(_answer, "EVAL", _SCRIPT, *arguments)


async def pinged(link: Link) -> str:
    """``PONG``, or the word for what went wrong."""

    def read(reply: object) -> str:
        assert isinstance(reply, bytes)
        return reply.decode()

    try:
        return await link.ask(read, "PING")
    except (RedisError, OSError) as error:
        return error_word(error)


def _answer(reply: object) -> str:
    match reply:
        case [0 | 1 as new, int(count)]:
            return f"{'granted' if new else 'replayed'} {count}"
    raise InvalidResponse("not an answer to a claim")
