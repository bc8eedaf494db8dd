"""A small aiohttp app whose every request needs Redis: python aiohttp_app.py PORT REDIS_PORT.

It reports by datagram (sidecar.client), or by POST to ERRORS_URL, and counts on /metrics for a scrape.
"""

from __future__ import annotations

import os
import sys
from collections import Counter

import aiohttp
import redis.asyncio
from aiohttp import web
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from sidecar.client import report

PORT, REDIS_PORT = (int(argument) for argument in sys.argv[1:3])
answered = Counter[int]({200: 0, 500: 0})


async def work(_request: web.Request) -> web.Response:
    client = redis.asyncio.Redis(port=REDIS_PORT, socket_timeout=1, retry=Retry(NoBackoff(), 0))
    status = 200
    try:
        await client.ping()
    except RedisError:
        status = 500
        await _tell()
    finally:
        await client.aclose()
    answered[status] += 1
    return web.Response(status=status)


async def _tell() -> None:
    report(kind="redis")
    if url := os.environ.get("ERRORS_URL"):
        async with aiohttp.ClientSession() as session, session.post(url, json={"kind": "redis"}) as answer:
            await answer.read()


async def metrics(_request: web.Request) -> web.Response:
    lines = "".join(f'http_requests_total{{status="{status}"}} {count}\n' for status, count in answered.items())
    return web.Response(text=f"# TYPE http_requests_total counter\n{lines}")


app = web.Application()
app.router.add_get("/work", work)
app.router.add_get("/metrics", metrics)
web.run_app(app, host="127.0.0.1", port=PORT, print=None)
