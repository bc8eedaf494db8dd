"""A page of 10,000 series, 1,000 of them wanted: CPU of a whole daemon for each scrape, beside the library's parser."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Self

from prometheus_client.parser import text_string_to_metric_families

from bench import machine
from bench.rig import NEVER, Rig, Tree
from bench.table import Row, at_most_of_baseline
from harness.sidecar import Setting

SERIES: Final = 10_000
EVERY_S: Final = 0.2
WANTED: Final = 'errors_total{wanted="yes"}'


def page(series: int, wave: int = 0) -> bytes:
    """A page of counters with labels; a tenth of them is wanted. ``wave``: how far the first of them has counted."""
    lines = ["# HELP errors_total What it is.", "# TYPE errors_total counter"]
    for number in range(series):
        labels = f'handler="/api/v1/resource/{number}",method="GET",wanted="{"yes" if number % 10 == 0 else "no"}"'
        lines.append(f"errors_total{{{labels}}} {number * 3 + (wave if number == 0 else 0)}")
    return "\n".join([*lines, ""]).encode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a daemon that stops cuts its connection."""


class Pages:
    """Serves such a page while the context lasts; the first counter rises by one with each request."""

    def __init__(self, series: int) -> None:
        first, rest = page(series).split(b'wanted="yes"} 0\n', 1)
        waves = iter(range(1_000_000))

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                body = first + b'wanted="yes"} %d\n' % next(waves) + rest
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Write nothing."""

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/metrics"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def measure(rig: Rig) -> Iterator[Row]:
    """With the request, the report, the turns of its loop and its controller, and with cold caches."""
    settings: dict[str, Setting] = {"scrape_errors": WANTED, "error_limit": NEVER, "outlier": "off"}
    with Pages(SERIES) as pages:
        daemons = {
            tree.name: rig.start(tree, "scrape", scrape_url=pages.url, **settings, **tree.scraped_each(EVERY_S))
            for tree in rig.trees
        }

        def cpu_ms(tree: Tree) -> float:
            daemon = daemons[tree.name]

            def scrapes() -> float:
                return daemon.metrics()['arbiter_scrapes_total{outcome="ok"}']

            first, before = scrapes(), machine.cpu_s(daemon.pid)
            time.sleep(2 if rig.is_quick else 6)
            used_s = machine.cpu_s(daemon.pid) - before
            return used_s / (scrapes() - first) * 1e3

        rig.in_turn(cpu_ms, 1)  # not measured: the first page teaches it the series
        samples = rig.in_turn(cpu_ms)
        for daemon in daemons.values():
            daemon.stop()
    library = [_library_ms() for _ in range(rig.rounds)]
    yield Row(f"scrape of {SERIES:,} series", "ms CPU", samples, at_most_of_baseline(1 / 8), library)


def _library_ms() -> float:
    text = page(SERIES).decode()
    begun = time.process_time()
    families = list(text_string_to_metric_families(text))
    taken_ms = (time.process_time() - begun) * 1e3
    if sum(len(family.samples) for family in families) != SERIES:
        raise RuntimeError("the library has read another page")
    return taken_ms
