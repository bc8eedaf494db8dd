"""An HTTP listener that serves a table of routes on any number of sockets. It must not know what the routes do."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from sidecar.net import web
from sidecar.net.acceptor import Acceptor, ConnectionStarter
from sidecar.net.bounded_server import BoundedServer
from sidecar.net.fast_path import FastPath
from sidecar.net.sockets import address_of, bind_tcp, bind_unix, remove_stale
from sidecar.net.threads import in_thread

if TYPE_CHECKING:
    from sidecar.net.address_gate import AddressGate
    from sidecar.net.connection import ResponseCache
    from sidecar.net.tls import ServerTls

PRIORITY_ACCEPTS: Final = 16
"""Connections accepted in a turn: with so few, each can send its request before the next ones replace it."""

OTHER_ACCEPTS: Final = 4
"""The same for listeners without priority."""

IDLE_S: Final = 75.0
SWEEP_S: Final = 5.0
WRONG_TOKEN_S: Final = 0.2
"""Delay of the response to a wrong token, against guessing. A right token has no delay."""


class Listener:
    """Serves ``routes``. ``guard`` sees every request first and may raise ``HttpError``.

    ``on_refusal(listener, word)`` gets every refused request and every cut connection, ``on_failure`` every exception
    of a handler: the client sees a 500 and no more. With ``tls`` TCP connections speak TLS, and ``gate`` says which of
    them are served.
    ``response_cache`` answers plain requests without aiohttp. ``is_priority``: the event loop serves this listener
    before all others. Without ``takes_bodies`` every request with a body is refused.
    """

    def __init__(
        self,
        name: str,
        routes: web.Routes,
        *,
        on_refusal: Callable[[str, str], None],
        on_failure: Callable[[Exception], None],
        guard: Callable[[web.BaseRequest], None] | None = None,
        max_connections: int = 256,
        idle_s: float = IDLE_S,
        tls: ServerTls | None = None,
        gate: AddressGate | None = None,
        response_cache: ResponseCache | None = None,
        is_priority: bool = False,
        takes_bodies: bool = True,
    ) -> None:
        self.name = name
        self.addresses: list[str] = []
        self._routes = routes
        self._guard = guard
        self._on_refusal = partial(on_refusal, name)
        self._on_failure = on_failure
        self._idle_s = idle_s
        self._tls = tls
        self._gate = gate
        self._at_once = max(1, min(PRIORITY_ACCEPTS if is_priority else OTHER_ACCEPTS, max_connections // 8))
        self._is_priority = is_priority
        self._acceptors: list[Acceptor] = []
        self._starter = ConnectionStarter(self._on_refusal, on_failure)
        self._server = BoundedServer(
            self._answer,
            self._on_refusal,
            on_failure,
            max_connections=max_connections,
            idle_s=idle_s,
            response_cache=response_cache,
            takes_bodies=takes_bodies,
        )
        self._fast_path = FastPath(self._server.heads, response_cache, self._on_refusal)

    async def open_tcp(self, host: str, port: int) -> None:
        """Listen on ``host:port``; OSError when that is not possible."""
        for opened in await in_thread(bind_tcp, host, port):
            self._listen(opened)

    async def open_unix(self, path: str) -> None:
        """Listen on a unix socket that its owner and group may use; OSError when that is not possible."""
        remove_stale(path)
        self._listen(bind_unix(path))

    def _listen(self, opened: socket.socket) -> None:
        is_tcp = opened.family != socket.AF_UNIX
        is_tls = self._tls is not None and is_tcp
        acceptor = Acceptor(
            opened,
            self._serve_tls if is_tls else self._serve,
            at_once=min(self._at_once, OTHER_ACCEPTS) if is_tls else self._at_once,  # each costs a signature
            on_full=partial(self._server.cut_oldest, "descriptors"),
            may_accept=self._starter.may_begin if is_tls else None,
            gate=self._gate if is_tcp else None,
            is_priority=self._is_priority,
        )
        self._acceptors.append(acceptor)
        self.addresses.append(address_of(opened))

    def _serve(self, connection: socket.socket) -> None:
        early = self._fast_path.read(connection)
        if early is not None:
            self._starter.begin(connection, partial(self._server, early))

    def _serve_tls(self, connection: socket.socket) -> None:
        assert self._tls is not None  # noqa: S101 - see _listen
        self._starter.begin(connection, self._server, self._tls.context)

    async def sweep(self) -> None:
        """Cut idle connections, until cancelled. Without a connection it does not wake up."""
        while True:
            await self._server.occupied.wait()
            await asyncio.sleep(min(SWEEP_S, self._idle_s))
            self._server.cut_idle()

    def stop(self) -> None:
        """Close the listening sockets, and remove their files. A second call does nothing; connections stay open."""
        while self._acceptors:
            acceptor = self._acceptors.pop()
            address = address_of(acceptor.socket)
            acceptor.close()
            if address.startswith("/"):
                with suppress(OSError):
                    remove_stale(address)

    async def close(self) -> None:
        """Stop listening and close every connection; responses under way have a second to leave."""
        self.stop()
        self._starter.close()
        self._server.pre_shutdown()  # closes connections between two requests at once
        await self._server.shutdown(1.0)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        response = await self._response_to(request)
        self._server.answered(request)
        return response

    async def _response_to(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            if self._guard is not None:
                self._guard(request)
            response = await self._route(request)(request)
            if isinstance(response, web.LongResponse):
                await self._server.keep_open(request, response)
        except web.HttpError as error:
            self._on_refusal(error.word)
            if error.status == HTTPStatus.UNAUTHORIZED:
                await asyncio.sleep(WRONG_TOKEN_S)
            return web.json_response({"error": str(error)}, error.status, error.headers)
        except web.HTTPRequestEntityTooLarge:
            self._on_refusal("too_large")
            return web.json_response({"error": f"body: larger than {web.BODY_LIMIT} bytes"}, 413)
        except Exception as error:  # noqa: BLE001 - aiohttp would count it as a bad request of the client
            self._on_failure(error)
            return web.json_response({"error": "the sidecar failed to answer, see its log"}, 500)
        return response

    def _route(self, request: web.BaseRequest) -> web.Handler:
        methods = self._routes.get(request.path)
        if methods is None:
            raise web.HttpError(404, "path", f"path: {request.path[:100]!r} is not served here")
        handler = methods.get("GET" if request.method == "HEAD" else request.method)
        if handler is None:
            allowed = _allowed(methods)
            raise web.HttpError(405, "method", f"method: {request.path} takes {allowed}", {"Allow": allowed})
        return handler


def _allowed(methods: Iterable[str]) -> str:
    return ", ".join(sorted({*methods, *(("HEAD",) if "GET" in methods else ())}))
