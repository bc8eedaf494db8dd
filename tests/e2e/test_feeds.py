"""One app that loses its database, seen by pings, datagrams and scrapes: the same verdict, and none once healed."""

from __future__ import annotations

import http.client
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from harness.ports import free_ports
from harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.sidecar import Setting, Sidecar
    from harness.starting import StartSidecar

INTERVAL_S = 0.5
SELECTORS: dict[str, Setting] = {
    "scrape_errors": 'kind=redis: http_requests_total{status=~"5.."}',
    "scrape_requests": "http_requests_total",
    "scrape_interval": f"{INTERVAL_S}s",
    "scrape_timeout": "400ms",
}


class App:
    """Answers /work with 200 or 500 and counts both on /metrics; a sidecar may be told of each failure."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.broken = False
        self.report: Callable[[], None] = lambda: None
        self.answered = {200: 0, 500: 0}
        app = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status = app.work() if self.path == "/work" else 200
                body = app.page() if self.path == "/metrics" else b""
                self.send_response(status)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing: the test asks the app itself."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def work(self) -> int:
        status = 500 if self.broken else 200
        self.answered[status] += 1
        if self.broken:
            self.report()
        return status

    def page(self) -> bytes:
        lines = [f'http_requests_total{{status="{status}"}} {count}' for status, count in self.answered.items()]
        return ("# TYPE http_requests_total counter\n" + "\n".join(lines) + "\n").encode()

    def asked(self, times: int) -> None:
        for _ in range(times):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            connection.request("GET", "/work")
            connection.getresponse().read()
            connection.close()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def app() -> Iterator[App]:
    app = App(free_ports(1)[0])
    yield app
    app.close()


def _by_pings(one: Sidecar, app: App) -> None:
    def report() -> None:
        one.post_error(kind="redis")

    app.report = report


def _by_datagrams(one: Sidecar, app: App) -> None:
    host, _, port = str(one.settings["statsd_listen"]).rpartition(":")

    def report() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"errors:1|c|#kind:redis", (host, int(port)))

    app.report = report


def _errors(one: Sidecar) -> int:
    errors: int = one.verdict()["evidence"]["errors"]
    return errors


@pytest.mark.parametrize("way", ["pings", "datagrams", "scrapes"])
def test_the_same_verdict_whatever_way_it_comes(sidecar: StartSidecar, app: App, way: str) -> None:
    settings: dict[str, Setting] = {"check_interval": f"{INTERVAL_S}s", "error_window": "4s", "settle": "3s"}
    settings |= {"mode": "shadow", "error_ratio": "0"}
    if way == "scrapes":
        settings |= SELECTORS | {"scrape_url": f"http://127.0.0.1:{app.port}/metrics"}
    if way == "datagrams":
        settings["statsd_listen"] = f"127.0.0.1:{free_ports(1)[0]}"
    one = sidecar("one", **settings)
    if way == "pings":
        _by_pings(one, app)
    elif way == "datagrams":
        _by_datagrams(one, app)
    else:
        wait_for(
            lambda: one.metrics()['arbiter_scrapes_total{outcome="ok"}'] >= 1, timeout_s=5, what="the first scrape"
        )
    app.asked(3)
    assert _errors(one) == 0

    app.broken = True
    app.asked(5)
    wait_for(lambda: _errors(one) == 5, timeout_s=5 * INTERVAL_S, what="all five are seen")
    wait_for(lambda: one.verdict()["state"] == "suspect", timeout_s=4 * INTERVAL_S, what="the verdict")
    assert one.verdict()["reasons"][0]["sentence"] == "5 server errors in 4 s (5 of them redis), the limit is 5"

    app.broken = False
    app.asked(3)
    wait_for(lambda: one.verdict()["state"] == "up", timeout_s=10, what="no verdict once healed")
    assert one.metrics()["arbiter_would_culls_total"] <= 1
    assert one.health() == (200, "up\n")


def test_a_page_that_cannot_be_had_is_no_error_of_the_app(sidecar: StartSidecar) -> None:
    (port,) = free_ports(1)
    one = sidecar("one", check_interval="500ms", scrape_url=f"http://127.0.0.1:{port}/metrics", **SELECTORS)
    name = 'arbiter_scrapes_total{outcome="connection"}'
    wait_for(lambda: one.metrics().get(name, 0) >= 3, timeout_s=8, what="three scrapes have failed")
    assert one.verdict()["state"] == "up"
    assert one.verdict()["evidence"]["missed_scrapes"] >= 3
    assert one.verdict()["evidence"]["errors"] == 0


def test_an_app_that_does_not_answer_can_be_a_verdict(sidecar: StartSidecar) -> None:
    (port,) = free_ports(1)
    settings: dict[str, Setting] = {"settle": "0s", "drain": "0s", "check_interval": "500ms", "scrape_down_after": "2"}
    one = sidecar("one", scrape_url=f"http://127.0.0.1:{port}/metrics", **SELECTORS, **settings)
    wait_for(lambda: one.health()[0] == 503, timeout_s=8, what="it is culled")
    assert "the app did not answer 2 scrapes in a row" in one.health()[1]


def test_datagrams_are_counted_and_garbage_dropped(sidecar: StartSidecar, app: App) -> None:
    one = sidecar("one", statsd_listen=f"127.0.0.1:{free_ports(1)[0]}", error_limit="1000")
    _by_datagrams(one, app)
    app.broken = True
    app.asked(4)
    host, _, port = str(one.settings["statsd_listen"]).rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"\xff\xfe not a line", (host, int(port)))
    unreadable = 'arbiter_datagram_dropped_total{reason="unreadable"}'
    wait_for(lambda: one.metrics()[unreadable] == 1, timeout_s=5, what="the garbage is counted")
    assert _errors(one) == 4
    assert one.metrics()["arbiter_datagram_packets_total"] == 5
