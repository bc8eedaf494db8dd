"""Errors that come by pings, by datagrams and from a scraped page: the same verdict, and none afterwards."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from harness.http_server import Asked, Said, http_server
from harness.ports import free_port
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.children import StartSidecar
    from harness.sidecar import Setting, Sidecar

pytestmark = pytest.mark.site

ERRORS = 5
SCRAPED = 'arbiter_scrapes_total{outcome="ok"}'


@contextmanager
def metrics_page() -> Iterator[tuple[str, list[int]]]:
    """The URL of a metrics page, and the errors on it."""
    errors = [0]

    def page(_: Asked) -> Said:
        return Said(
            200, f'http_requests_total{{status="500"}} {sum(errors)}\n'.encode(), {"Content-Type": "text/plain"}
        )

    with http_server(page) as port:
        yield f"http://127.0.0.1:{port}/metrics", errors


def _suspicion(one: Sidecar) -> dict[str, Any]:
    """What it logged when it became suspect; else empty. The log stays, however late the test reads it."""
    return next((line for line in one.log_lines() if line["message"] == "suspect"), {})


@pytest.mark.parametrize("way", ["pings", "datagrams", "scrapes"])
def test_verdict_is_the_same_for_every_way_of_reporting(sidecar: StartSidecar, way: str) -> None:
    statsd = ("127.0.0.1", free_port())
    with metrics_page() as (url, errors):
        settings: dict[str, Setting] = {
            "mode": "shadow",
            "check_interval": "1s",
            "redis_timeout": "900ms",
            "error_window": "5s",
            "statsd_listen": f"{statsd[0]}:{statsd[1]}",
            "scrape_url": url,
            "scrape_errors": 'kind=redis: http_requests_total{status=~"5.."}',
        }
        one = sidecar("one", **settings)
        wait_for(lambda: one.metrics()[SCRAPED] >= 1, timeout_s=60, what="the first scrape")
        if way == "pings":
            one.post_error(ERRORS, kind="redis")
        elif way == "datagrams":
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                for _ in range(ERRORS):
                    sender.sendto(b"errors:1|c|#kind:redis", statsd)
        else:
            errors.append(ERRORS)
        suspicion = wait_for(lambda: _suspicion(one), timeout_s=60, what="the verdict")
        assert suspicion["errors"] == ERRORS
        assert suspicion["reason"] == "5 server errors in 5 s (5 of them redis), the limit is 5"
        wait_for(lambda: one.verdict()["state"] == "up", timeout_s=60, what="no verdict once healed")
        assert one.health() == (200, "up\n")
