"""The replies of the local listener that need the shared store, or that are too long for one turn of the event loop.

A long document is made and sent in pieces, and health answers go between. The whole is made before the first piece is
sent: it has the content of one moment, and says its length.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, TypeVar

from aiohttp import hdrs

from sidecar.core.claims import ALONE, Unknown
from sidecar.core.explain import reasons
from sidecar.net import web

T = TypeVar("T")

PIECE: Final = 32 * 1024
"""Length of a piece: characters that take less than a millisecond to make, bytes that take much less to send."""

SEND_S: Final = 30.0
"""Maximum time to send a document; then its connection is closed. Few are sent at once, and other clients wait."""

SENT_AT_ONCE: Final = 12
"""Shared answers that are sent at the same time: each takes up to 1 MiB at 2,000 containers."""

PART: Final = 0.2
"""The part of the time of the loop that a shared answer takes at most, however many ask for it."""

LONGEST_REST_S: Final = 0.5


async def within(limit_s: float, call: Awaitable[T | Unknown]) -> T | Unknown:
    """The result of ``call``, or ``Unknown("timeout")`` after ``limit_s``."""
    try:
        async with asyncio.timeout(limit_s):
            return await call
    except TimeoutError:
        return Unknown("timeout")


def unknown_fields(answer: object) -> dict[str, str]:
    """The error word and its sentence as JSON fields; none for a clear answer."""
    return {"error": answer.error, "sentence": reasons.unreachable(answer)} if isinstance(answer, Unknown) else {}


def status_of(answer: object) -> HTTPStatus:
    """The status of a response that needs the store."""
    if not isinstance(answer, Unknown) or answer.error == ALONE:
        return HTTPStatus.OK
    return HTTPStatus.GATEWAY_TIMEOUT if answer.error == "timeout" else HTTPStatus.BAD_GATEWAY


async def dump(fields: Mapping[str, Any]) -> list[bytes]:
    """The fields as ``web.json_response`` writes them; the rows of lists and iterators are made in pieces, too."""
    pieces, texts, length = list[bytes](), list[str](), 0
    for text in _texts(fields):
        texts.append(text)
        length += len(text)
        if length >= PIECE:
            pieces.append("".join(texts).encode())
            texts, length = [], 0
            await asyncio.sleep(0)
    return [*pieces, "".join(texts).encode()]


async def respond(request: web.BaseRequest, pieces: Sequence[bytes], status: int = 200) -> web.StreamResponse:
    """Send the pieces of a JSON document as fast as the client reads, for at most ``SEND_S``.

    The response is over, also if the client left.
    """
    response = web.StreamResponse(status=status, headers={hdrs.SERVER: web.PRODUCT, hdrs.CACHE_CONTROL: "no-store"})
    response.content_type, response.content_length = "application/json", sum(map(len, pieces))
    try:
        async with asyncio.timeout(SEND_S):
            await response.prepare(request)
            for piece in pieces if request.method != hdrs.METH_HEAD else ():
                await response.write(piece)
                await asyncio.sleep(0)
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()  # to close it would wait for the client
    except OSError:  # the client has left, which aiohttp finds as well
        pass
    return response


def _texts(fields: Mapping[str, Any]) -> Iterator[str]:
    """The document, one text for each row of a list."""
    opening = "{"
    for name, value in fields.items():
        yield f"{opening}{json.dumps(name)}: "
        opening = ", "
        if not isinstance(value, list | Iterator):
            yield json.dumps(value)
            continue
        yield "["
        for number, row in enumerate(value):
            yield f"{', ' if number else ''}{json.dumps(row)}"
        yield "]"
    yield "}\n"


class SharedAnswer:
    """An answer that many ask for: those who come while one is made share the next one.

    ``make`` gives its status and its pieces. It is called again only after a rest, in proportion to what it took.
    """

    def __init__(self, make: Callable[[], Awaitable[tuple[int, list[bytes]]]]) -> None:
        self._make = make
        self._making = asyncio.Lock()
        self._sending = asyncio.Semaphore(SENT_AT_ONCE)
        self._rests_until = 0.0
        self.asked = 0  # the number of requests so far
        self._made_for = 0  # the number of the last request that had come when the answer below was begun
        self._made: tuple[int, list[bytes]] = HTTPStatus.OK, []

    async def get(self, request: web.BaseRequest) -> web.StreamResponse:
        """The answer, which is never older than its request."""
        self.asked += 1
        number = self.asked
        async with self._sending:
            status, pieces = await self.newest(number)
            return await respond(request, pieces, status)

    async def newest(self, number: int) -> tuple[int, list[bytes]]:
        """The answer for the request of this number."""
        async with self._making:
            if self._made_for < number:
                await self._make_next()
            return self._made

    async def _make_next(self) -> None:
        clock = asyncio.get_running_loop().time
        await asyncio.sleep(self._rests_until - clock())
        asked, begun_s = self.asked, time.thread_time()
        self._made = await self._make()
        self._made_for = asked
        took_s = time.thread_time() - begun_s
        self._rests_until = clock() + min(LONGEST_REST_S, took_s * (1 - PART) / PART)
