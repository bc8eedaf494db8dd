"""The baselines: servers that do only what a benchmark asks of the sidecar.

``python servers.py NAME HOST:PORT [UNIX SOCKET or REDIS URL]``: ``bare``, ``trivial`` or ``four``. Each imports only
its own libraries, because memory and start-up are measured too.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aiohttp import web

NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"


async def bare(host: str, port: int, unix_socket: str) -> None:
    """aiohttp as its documentation shows it, without an access log. It takes a report and answers as the sidecar does."""
    from aiohttp import web  # noqa: PLC0415 - each process has its own libraries only

    waiting: deque[object] = deque(maxlen=1000)

    async def post_errors(request: web.Request) -> web.Response:
        report = await request.json() if request.can_read_body else {}
        if not isinstance(report, dict) or not isinstance(report.get("kind", ""), str):
            raise web.HTTPBadRequest(text="kind: takes a text")
        waiting.append(report)
        return web.json_response({"state": "up"}, status=202)

    async def health(_request: web.Request) -> web.Response:
        return web.Response(text="up\n")

    app = web.Application()
    app.router.add_post("/errors", post_errors)
    app.router.add_get("/health", health)
    app.router.add_get("/metrics", health)
    await _serve(app, host, port, unix_socket)


async def trivial(host: str, port: int, _nothing: str) -> None:
    """Answers without reading: the ceiling of the load generator."""

    class Answer(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            self._write = transport.write

        def data_received(self, _data: bytes) -> None:
            self._write(NO_CONTENT)

    await asyncio.get_running_loop().create_server(Answer, host, port, backlog=1024)
    await asyncio.Event().wait()


async def four(host: str, port: int, redis_url: str) -> None:
    """The four libraries of the sidecar with their usual imports."""
    import prometheus_client  # noqa: PLC0415 - as in bare
    import pydantic_settings  # noqa: PLC0415 - as in bare
    import redis.asyncio  # noqa: PLC0415 - as in bare
    from aiohttp import web  # noqa: PLC0415 - as in bare

    class Settings(pydantic_settings.BaseSettings):
        redis_url: str
        error_limit: int = 5
        error_window_s: float = 60

    settings = Settings(redis_url=redis_url)
    errors = prometheus_client.Counter("errors", "Errors reported by the app.")
    client = redis.asyncio.Redis.from_url(settings.redis_url)

    async def ping(_request: web.Request) -> web.Response:
        errors.inc()
        return web.Response(status=204)

    async def health(_request: web.Request) -> web.Response:
        return web.Response(text="up\n")

    async def metrics(_request: web.Request) -> web.Response:
        page = prometheus_client.generate_latest()
        return web.Response(body=page, headers={"Content-Type": prometheus_client.CONTENT_TYPE_LATEST})

    async def connected(_app: web.Application) -> None:
        await client.ping()

    app = web.Application()
    app.on_startup.append(connected)
    app.router.add_post("/errors", ping)
    app.router.add_get("/health", health)
    app.router.add_get("/metrics", metrics)
    await _serve(app, host, port, "")


async def _serve(app: web.Application, host: str, port: int, unix_socket: str) -> None:
    from aiohttp import web  # noqa: PLC0415 - as in bare

    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    if unix_socket:
        await web.UnixSite(runner, unix_socket, backlog=1024).start()
    await web.TCPSite(runner, host, port, backlog=1024).start()
    await asyncio.Event().wait()


SERVERS: dict[str, Callable[[str, int, str], Coroutine[object, object, None]]] = {
    "bare": bare,
    "trivial": trivial,
    "four": four,
}

if __name__ == "__main__":
    name, address, *more = sys.argv[1:]
    at_host, _, at_port = address.rpartition(":")
    asyncio.run(SERVERS[name](at_host, int(at_port), more[0] if more else ""))
