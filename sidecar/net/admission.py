"""Who is let in by the token: read in a thread, for the disk that holds its file may hang, and health shares our loop.

One reading at most is under way, however many wait. Who comes meanwhile shares the next one, which begins when that
has ended: so a file that was changed counts from the next request on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from sidecar.net.listener import Refusal
from sidecar.net.threads import in_thread
from sidecar.net.token_file import given, is_same

LIMIT_S: Final = 2.0


class Admission:
    """Lets in who brings what ``read`` gives, ``b""`` for nobody. A request waits ``limit_s`` seconds at most."""

    def __init__(self, read: Callable[[], bytes], limit_s: float = LIMIT_S) -> None:
        self._read = read
        self._limit_s = limit_s
        self._reading: asyncio.Task[bytes] | None = None

    async def admits(self, header: str | None) -> bool:
        """Whether this ``Authorization`` brings the token; ``Refusal`` if the file does not tell in time."""
        brought = given(header)
        if not brought:
            return False
        try:
            async with asyncio.timeout(self._limit_s):
                token = await self._token()
        except (TimeoutError, RuntimeError):  # the latter when no thread can be started
            sentence = (
                f"token: the file of ARBITER_TOKEN_FILE cannot be read within {self._limit_s:g} s, nobody is let in"
            )
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "token_file", sentence) from None
        return is_same(brought, token)

    async def _token(self) -> bytes:
        """What a reading gives that begins after the call."""
        earlier = reading = self._reading
        if earlier is not None and not earlier.done():
            await asyncio.wait((earlier,))
            reading = self._reading
        if reading is None or reading is earlier:  # else another who waited has begun the next
            reading = self._reading = asyncio.create_task(in_thread(self._read))
        return await asyncio.shield(reading)
