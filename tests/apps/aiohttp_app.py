"""A small aiohttp app whose every request needs Redis: python aiohttp_app.py PORT REDIS_PORT.

It reports by datagram to STATSD_PORT, by the client to ARBITER_LOCAL_LISTEN, and counts on /metrics for a scrape.
"""

from __future__ import annotations

import os
import socket
import sys
from collections import Counter

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
        _report()
    finally:
        await client.aclose()
    answered[status] += 1
    return web.Response(status=status)


def _report() -> None:
    report(kind="redis")
    if port := os.environ.get("STATSD_PORT"):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"errors:1|c|#kind:redis", ("127.0.0.1", int(port)))


async def metrics(_request: web.Request) -> web.Response:
    lines = "".join(f'http_requests_total{{status="{status}"}} {count}\n' for status, count in answered.items())
    return web.Response(text=f"# TYPE http_requests_total counter\n{lines}")


app = web.Application()
app.router.add_get("/work", work)
app.router.add_get("/metrics", metrics)
web.run_app(app, host="127.0.0.1", port=PORT, print=None)
