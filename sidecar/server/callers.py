"""Whether the sender of an order may give it, and the origin of the order, as far as the connection shows it."""

from __future__ import annotations

import socket
import struct
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final

from aiohttp import hdrs

from sidecar.net import web

Authorize = Callable[[str | None], Awaitable[bool]]
"""Whether an ``Authorization`` header, or its absence, permits the order; ``HttpError`` if the check fails."""

_CREDENTIALS: Final = struct.Struct("3i")
"""``struct ucred`` of unix(7): process, user, group."""


async def check(request: web.BaseRequest, authorize: Authorize | None) -> None:
    """Raise ``HttpError`` for a request over TCP without the token. A unix socket is protected by its file's mode."""
    if authorize is not None and web.is_tcp(request) and not await authorize(request.headers.get(hdrs.AUTHORIZATION)):
        sentence = "Authorization: orders over TCP take Bearer and the token in the file of ARBITER_TOKEN_FILE"
        raise web.HttpError(HTTPStatus.UNAUTHORIZED, "token", sentence, {hdrs.WWW_AUTHENTICATE: "Bearer"})


def origin(request: web.BaseRequest) -> str:
    """The origin of an order, for the log and the ledger."""
    peer = request.protocol.peername
    if isinstance(peer, tuple):
        return f"over TCP from {peer[0]}"
    return f"over the unix socket{_user(request)}"


def _user(request: web.BaseRequest) -> str:
    connection: Any = request.transport and request.transport.get_extra_info("socket")
    try:
        packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except (AttributeError, OSError):  # another kind of socket, or it is closed already
        return ""
    return f" by user {_CREDENTIALS.unpack(packed)[1]}"
