"""An HTTP listener round a table of routes. It must not know what the routes do."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from aiohttp import hdrs
from aiohttp.http import HttpVersion11

from sidecar.net import web
from sidecar.net.accepting import Accepting, Adopting
from sidecar.net.connections import BODY_LIMIT, Connections, Handler, Held
from sidecar.net.garbage import BROKEN_OFF
from sidecar.net.greeting import Greeting
from sidecar.net.sockets import bound, bound_tcp, located, remove_stale
from sidecar.net.threads import in_thread

if TYPE_CHECKING:
    from sidecar.net.crowd import Ready
    from sidecar.net.tls import TlsDoors

ACCEPTED_AT_ONCE: Final = 16
"""So few that a connection has brought its request before a crowd that came with it can push it out."""

ACCEPTED_BEHIND: Final = 4
"""By doors that are not looked at first."""

SERVER: Final = "health-arbiter"
"""The versions of Python and aiohttp, which that would name, help nobody but who looks for a hole in them."""

BODY_S: Final = 5.0
IDLE_S: Final = 75.0
SWEEP_S: Final = 5.0
GUESS_S: Final = 0.2
"""Who brings a wrong token waits for the answer, on one of few connections; who brings the right one does not."""

Routes = Mapping[str, Mapping[str, Handler]]
"""``{path: {method: handler}}``; a handler of GET answers HEAD as well."""


class Refusal(Exception):  # noqa: N818 - it is an answer to the client, not an error of ours
    """A request that is answered with a 4xx (or 503) and a sentence; ``word`` is the metric's label."""

    def __init__(self, status: int, word: str, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.word = word
        self.headers = headers


class Listener:
    """Serves ``routes`` on any number of sockets. ``guard`` sees every request first and may raise ``Refusal``.

    ``on_refusal(listener, word)`` is told of every request that was refused and every connection that was cut,
    ``on_failure`` of what a route let out: the client sees a 500 and no more. With ``tls`` it speaks that over TCP.
    ``ready``: answers that were made before any request. ``is_first``: the loop looks at it before all other doors.
    Without ``takes_bodies`` every request that has one is refused.
    """

    def __init__(
        self,
        name: str,
        routes: Routes,
        *,
        on_refusal: Callable[[str, str], None],
        on_failure: Callable[[Exception], None],
        guard: Callable[[web.BaseRequest], None] | None = None,
        max_connections: int = 256,
        idle_s: float = IDLE_S,
        tls: TlsDoors | None = None,
        ready: Ready | None = None,
        is_first: bool = False,
        takes_bodies: bool = True,
    ) -> None:
        self.name = name
        self.addresses: list[str] = []
        self._routes = routes
        self._guard = guard
        self._refused = partial(on_refusal, name)
        self._on_failure = on_failure
        self._idle_s = idle_s
        self._at_once = max(1, min(ACCEPTED_AT_ONCE if is_first else ACCEPTED_BEHIND, max_connections // 8))
        self._is_first = is_first
        self._accepting: list[Accepting] = []
        self._adopting = Adopting(on_failure)
        self._server = Connections(
            self._answer,
            self._refused,
            on_failure,
            max_connections=max_connections,
            idle_s=idle_s,
            ready=ready,
            takes_bodies=takes_bodies,
        )
        self._greeting = Greeting(self._server.heads, ready, self._refused)
        self._handshakes = tls.over(self._server, self._refused, on_failure) if tls else None

    async def open_tcp(self, host: str, port: int) -> None:
        """Listen on ``host:port``; OSError when that is not possible."""
        for opened in await in_thread(bound_tcp, host, port):
            await self.adopt(opened)

    async def open_unix(self, path: str) -> None:
        """Listen on a unix socket that its owner and group may use; OSError when that is not possible."""
        remove_stale(path)
        await self.adopt(bound(path))

    async def adopt(self, opened: socket.socket) -> None:
        """Listen on a socket that is bound already, of either kind."""
        is_tls = self._handshakes is not None and opened.family != socket.AF_UNIX
        accepting = Accepting(
            opened,
            self._shake_hands if is_tls else self._serve,
            at_once=self._at_once,
            on_full=partial(self._server.make_room, "descriptors"),
            is_first=self._is_first,
        )
        self._accepting.append(accepting)
        self.addresses.append(located(opened))

    def _serve(self, connection: socket.socket) -> None:
        early = self._greeting.meet(connection)
        if early is not None:
            self._adopting(connection, partial(self._server, early))

    def _shake_hands(self, connection: socket.socket) -> None:
        assert self._handshakes is not None  # noqa: S101 - else it is served without
        self._adopting(connection, self._handshakes)

    async def adopt_connection(self, connection: socket.socket) -> None:
        """Serve a connection that another process had between two requests; such a one is without TLS."""
        connection.settimeout(0)
        await self._adopting.adopt(connection, self._server)

    @property
    def descriptors(self) -> list[tuple[int, str]]:
        """What it listens on, each with its address."""
        return [*zip((each.socket.fileno() for each in self._accepting), self.addresses, strict=True)]

    def accept_no_more(self) -> None:
        """Leave who waits to whoever else listens; who was accepted is served."""
        for accepting in self._accepting:
            accepting.stop()

    @property
    def is_busy(self) -> bool:
        """Whether there is any connection, but for those that are held; or one that is about to be."""
        return (
            self._server.is_busy
            or self._adopting.is_busy
            or (self._handshakes is not None and self._handshakes.is_busy)
        )

    def let_go(self) -> list[socket.socket]:
        """Give away every connection that is between two requests; nothing that came on it was read.

        One with TLS is ended in good order instead.
        """
        return self._server.let_go()

    async def sweep(self) -> None:
        """Cut connections that have been without a whole request for too long, until cancelled."""
        while True:
            await asyncio.sleep(min(SWEEP_S, self._idle_s))
            self._server.cut_idle()

    async def close(self, *, keep_paths: bool = False) -> None:
        """Stop listening and end every connection; answers under way have a moment to leave.

        ``keep_paths``: somebody else listens on our unix sockets, whose files stay.
        """
        for accepting in self._accepting:
            accepting.close()
        if self._handshakes is not None:
            self._handshakes.close()
        self._server.pre_shutdown()  # who is between two requests is not waited for
        await self._server.shutdown(1.0)
        for path in filter(os.path.isabs, () if keep_paths else self.addresses):
            with suppress(OSError):
                remove_stale(path)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        response = await self._judged(request)
        if not response.prepared:
            response.headers[hdrs.SERVER] = SERVER
        self._server.answered(request)
        return response

    async def _judged(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            if self._guard is not None:
                self._guard(request)
            return await self._respond(request)
        except Refusal as refusal:
            self._refused(refusal.word)
            if refusal.status == HTTPStatus.UNAUTHORIZED:
                await asyncio.sleep(GUESS_S)
            return _error(refusal.status, str(refusal), refusal.headers)
        except web.HTTPRequestEntityTooLarge:
            self._refused("too_large")
            return _error(413, f"body: larger than {BODY_LIMIT} bytes")
        except Exception as error:  # noqa: BLE001 - aiohttp would count it as garbage from the client
            self._on_failure(error)
            return _error(500, "the sidecar failed to answer, see its log")

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        response = await self._route(request)(request)
        if isinstance(response, Held):
            await self._server.hold(request, response)
        return response

    def _route(self, request: web.BaseRequest) -> Handler:
        methods = self._routes.get(request.path)
        if methods is None:
            raise Refusal(404, "path", f"path: {request.path[:100]!r} is not served here")
        handler = methods.get("GET" if request.method == "HEAD" else request.method)
        if handler is None:
            allowed = _allowed(methods)
            raise Refusal(405, "method", f"method: {request.path} takes {allowed}", {"Allow": allowed})
        return handler


async def body(request: web.BaseRequest, timeout_s: float = BODY_S) -> bytes:
    """The request's body, whole; ``Refusal`` when it is too large, compressed, broken, or does not come in time."""
    if not request.body_exists:
        return b""
    if (request.content_length or 0) > BODY_LIMIT:
        raise Refusal(413, "too_large", f"body: larger than {BODY_LIMIT} bytes")
    if request.headers.get(hdrs.CONTENT_ENCODING, "identity").lower() != "identity":
        raise Refusal(415, "encoding", "Content-Encoding: send the body as it is")
    if request.content.is_eof():
        return await request.read()
    try:
        async with asyncio.timeout(timeout_s):
            await _invite(request)
            return await request.read()
    except TimeoutError:
        raise Refusal(408, "slow", f"body: did not come within {timeout_s:g} s") from None
    except (*BROKEN_OFF, RuntimeError) as error:  # the latter when it was we who cut the connection
        error.__traceback__ = None  # its frames hold what has come of the body, and the error: until a collection
        raise Refusal(400, "broken", "body: broke off") from None


async def _invite(request: web.BaseRequest) -> None:
    """Tell a client that asked first (curl does, for a large body) that it may send it (RFC 9110, section 10.1.1)."""
    if request.headers.get(hdrs.EXPECT, "").lower() == "100-continue" and request.version >= HttpVersion11:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # the answer itself has not begun


def json_response(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """Answer with a JSON document and a final newline, kind to a terminal."""
    content = json.dumps(value).encode() + b"\n"
    return web.Response(body=content, status=status, headers=headers, content_type="application/json")


def _error(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> web.Response:
    return json_response({"error": sentence}, status, headers)


def _allowed(methods: Iterable[str]) -> str:
    return ", ".join(sorted({*methods, *(("HEAD",) if "GET" in methods else ())}))
