"""Who gives an order, as far as the connection tells, and whether they may."""

from __future__ import annotations

import socket
import struct
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final

from aiohttp import hdrs

from sidecar.net import web
from sidecar.net.listener import Refusal

Admits = Callable[[str | None], Awaitable[bool]]
"""Whether an ``Authorization`` header, or that there is none, lets somebody in; ``Refusal`` if that cannot be told."""

_CREDENTIALS: Final = struct.Struct("3i")
"""``struct ucred`` of unix(7): process, user, group."""


async def check(request: web.BaseRequest, admits: Admits | None) -> None:
    """Raise ``Refusal`` for an order over TCP without the token, if there is one; a unix socket has its file's mode."""
    if admits is not None and is_tcp(request) and not await admits(request.headers.get(hdrs.AUTHORIZATION)):
        sentence = "Authorization: orders over TCP take Bearer and the token in the file of ARBITER_TOKEN_FILE"
        raise Refusal(HTTPStatus.UNAUTHORIZED, "token", sentence, {hdrs.WWW_AUTHENTICATE: "Bearer"})


def origin(request: web.BaseRequest) -> str:
    """Where an order came from, for those who read later who gave it."""
    peer = request.protocol.peername
    if isinstance(peer, tuple):
        return f"over TCP from {peer[0]}"
    return f"over the unix socket{_user(request)}"


def is_tcp(request: web.BaseRequest) -> bool:
    """Whether it came over TCP."""
    return isinstance(request.protocol.peername, tuple)


def _user(request: web.BaseRequest) -> str:
    connection: Any = request.transport and request.transport.get_extra_info("socket")
    try:
        packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except (AttributeError, OSError):  # another kind of socket, or it is closed already
        return ""
    return f" by user {_CREDENTIALS.unpack(packed)[1]}"
