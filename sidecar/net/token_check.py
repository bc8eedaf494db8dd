"""Checks the bearer token of requests. A thread reads its file, because the disk may hang and health shares the loop.

At most one read is under way; requests that arrive during it share it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from sidecar.net.threads import in_thread
from sidecar.net.token_file import bearer_token, is_same
from sidecar.net.web import HttpError

LIMIT_S: Final = 2.0


class TokenCheck:
    """Compares a request's token with what ``read`` returns, ``b""`` for none. A request waits ``limit_s`` at most."""

    def __init__(self, read: Callable[[], bytes], limit_s: float = LIMIT_S) -> None:
        self._read = read
        self._limit_s = limit_s
        self._reading: asyncio.Task[bytes] | None = None

    async def allows(self, header: str | None) -> bool:
        """Whether this ``Authorization`` header has the token; ``HttpError`` if its file cannot be read in time."""
        given = bearer_token(header)
        if not given:
            return False
        try:
            async with asyncio.timeout(self._limit_s):
                token = await self._token()
        except (TimeoutError, RuntimeError):  # RuntimeError: no thread can be started
            sentence = f"token: the file of ARBITER_TOKEN_FILE cannot be read within {self._limit_s:g} s, try again"
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, "token_file", sentence) from None
        return is_same(given, token)

    async def _token(self) -> bytes:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(in_thread(self._read))
        return await asyncio.shield(self._reading)
