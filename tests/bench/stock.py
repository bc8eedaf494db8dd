"""The baseline: ``POST /errors`` and ``GET /health`` by stock aiohttp, as its documentation shows it."""

from __future__ import annotations

import asyncio
import sys

from aiohttp import web


async def errors(request: web.Request) -> web.Response:
    """Take a report as the sidecar does."""
    await request.json()
    return web.json_response({"state": "up"}, status=202)


async def health(_request: web.Request) -> web.Response:
    """Answer a poll."""
    return web.Response(text="up\n")


async def main(port: int) -> None:
    """Serve for ever."""
    app = web.Application()
    app.router.add_post("/errors", errors)
    app.router.add_get("/health", health)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, backlog=1024).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
