"""``doctor --scrape``: what it says of a metrics page over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import click
import pytest

from harness.ports import free_port
from sidecar.cli.doctor import scrape_findings
from sidecar.cli.doctor.findings import Finding, fail, ok, warn
from sidecar.config.settings import AppConfig

PAGE = (Path(__file__).parents[2] / "inputs" / "pages" / "micrometer.txt").read_bytes()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server with the page at ``/metrics``, an empty one at ``/empty``, and HTML elsewhere."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = {"/metrics": PAGE, "/empty": b""}.get(self.path)
            self.send_response(200)
            self.send_header("Content-Type", "text/html" if body is None else "text/plain")
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def _of(url: str, config: AppConfig | None = None) -> list[Finding]:
    target = scrape_findings.target(url) if config is None else None
    return asyncio.run(scrape_findings.of_page(config or AppConfig(), target))


def test_selectors_are_proposed_as_they_are_set(url: str) -> None:
    name = "http_server_requests_seconds_count"
    assert _of(f"{url}/metrics") == [
        ok("scrape", f"""ARBITER_SCRAPE_ERRORS='{name}{{status=~"5.."}}'"""),
        ok("scrape", f"ARBITER_SCRAPE_REQUESTS='{name}'"),
        ok("scrape", "ARBITER_SCRAPE_IN_FLIGHT='http_server_requests_active_seconds_count'"),
    ]


@pytest.mark.parametrize(("path", "says"), [("/empty", "0 names are on the page"), ("/other", "content_type")])
def test_page_without_metrics_is_said_to_be_none(path: str, says: str, url: str) -> None:
    (found,) = _of(url + path)
    assert says in found.sentence
    assert found.level is (warn if path == "/empty" else fail)("scrape", "").level


def test_page_that_does_not_answer_is_a_failure() -> None:
    found = _of(f"http://127.0.0.1:{free_port()}/metrics")
    assert found == [fail("scrape", "the metrics page cannot be read: connection")]


def test_configured_selectors_are_compared_with_the_page(url: str) -> None:
    config = AppConfig(scrape_url=f"{url}/metrics", scrape_errors="http_server_request_seconds_count")
    (found,) = _of("", config)
    assert found.level is warn("scrape", "").level
    assert found.sentence.startswith("ARBITER_SCRAPE_ERRORS: nothing on the page is called http_server_request_seconds")
    right = config._replace(scrape_errors='http_server_requests_seconds_count{status=~"5.."}')
    assert _of("", right) == [ok("scrape", "each selector has a name that is on the metrics page")]


def test_url_that_is_none_is_a_usage_error() -> None:
    with pytest.raises(click.UsageError, match="--scrape: takes http"):
        scrape_findings.target("app:8080")
