"""Answers that are too long for one turn of the event loop: made and sent in pieces, and health answers go between.

The whole is made before the first piece is sent: it has the content of one moment, and says its length.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from aiohttp import hdrs

from sidecar.net import web

PIECE: Final = 32 * 1024
"""Length of a piece: characters that take less than a millisecond to make, bytes that take much less to send."""


async def written(fields: Mapping[str, Any]) -> list[bytes]:
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


async def respond(
    request: web.BaseRequest, pieces: Sequence[bytes], status: int = 200, headers: Mapping[str, str] | None = None
) -> web.StreamResponse:
    """Send the pieces of a JSON document as fast as the client reads. The response is over, also if the client left."""
    response = web.StreamResponse(status=status, headers={hdrs.SERVER: web.PRODUCT, **(headers or {})})
    response.content_type, response.content_length = "application/json", sum(map(len, pieces))
    with suppress(OSError):  # the client has left, which aiohttp finds as well
        await response.prepare(request)
        for piece in pieces if request.method != hdrs.METH_HEAD else ():
            await response.write(piece)
            await asyncio.sleep(0)
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
