"""What the doctor says of the sidecar here, of its files, its limit and its listener, and of a metrics page."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import click
import pytest

from harness.ports import free_port
from sidecar.cli.doctor import Finding, fail, ok, sidecar_findings, warn
from sidecar.config.load import load
from sidecar.config.settings import AppConfig, Config, JudgingConfig, TlsConfig

if TYPE_CHECKING:
    from sidecar.cli.doctor import Finding


def _settings(**flags: object) -> Config:
    return load({name: str(value) for name, value in flags.items()}, {})


# -- files ------------------------------------------------------------------------------------------------------


def test_files_that_are_there_and_closed_are_well_and_a_missing_one_is_warned_of(tmp_path: Path) -> None:
    settings = _settings(state_dir=tmp_path)
    assert [*sidecar_findings.of_files(settings, {})] == [
        ok("files", "those that the settings name are there, and no other user can read a secret")
    ]
    (found,) = sidecar_findings.of_files(_settings(state_dir=tmp_path / "none"), {})
    assert (found.level, found.what) == ("warn", "files")
    assert "a cull would not survive the sidecar" in found.sentence


@pytest.mark.parametrize(
    ("allowed", "said"),
    [("", []), ("10.1.0.0/16", []), ("10.2.0.0/16", ["ARBITER_PUBLIC_ALLOW leaves out 10.1.2.3, the address of"])],
    ids=["everybody", "listed", "left out"],
)
def test_checks_of_this_nomad_client_have_to_be_allowed(allowed: str, said: list[str], tmp_path: Path) -> None:
    settings = _settings(state_dir=tmp_path, public_allow=allowed)
    found = sidecar_findings.of_files(settings, {"NOMAD_IP_arbiter": "10.1.2.3"})
    assert [each.sentence[: len(said[0])] for each in found if each.what == "nomad"] == said


# -- the limit --------------------------------------------------------------------------------------------------


CULLS_FOR_NOISE = (
    "your containers have 3 errors a minute when well; a limit of 5 culls for noise: noise reaches it in 18 % of all "
    "windows; ARBITER_ERROR_LIMIT=18 is above it"
)


@pytest.mark.parametrize(
    ("usual", "settings", "level", "said"),
    [
        (0.0, {}, None, ""),
        (0.2, {"error_limit": 8}, "ok", "0.2 errors a minute when well; noise hardly ever reaches a limit of 8"),
        (3.0, {"outlier": "off"}, "warn", CULLS_FOR_NOISE),
        (3.0, {"error_limit": 18}, "ok", "noise hardly ever reaches a limit of 18"),
        (3.0, {}, "warn", "a limit of 5 means little, and only ARBITER_OUTLIER spares them: noise reaches it in 18 %"),
        (6.0, {"error_window": 120.0, "error_limit": 20}, "warn", "3 errors a minute when well; a limit of 20 means"),
    ],
    ids=["nothing is known", "far above", "noise culls", "the least", "the outlier rule spares them", "another window"],
)
def test_limit_against_the_usual_errors(
    usual: float, settings: dict[str, object], level: str | None, said: str
) -> None:
    found = list(sidecar_findings.of_limit(JudgingConfig(**settings), usual, 200))  # type: ignore[arg-type]
    assert [each.level for each in found] == ([level] if level else [])
    assert all(said in each.sentence for each in found)


# -- the public listener ----------------------------------------------------------------------------------------


def _answering(answer: bytes) -> socket.socket:
    """A listener that says this to its first client."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError), server.accept()[0] as connection:
            connection.settimeout(60)
            connection.recv(1024)
            connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    return server


@pytest.mark.parametrize(
    ("host", "answer", "level", "said"),
    [
        ("127.0.0.1", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "ok", "/livez is 200"),
        ("0.0.0.0", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "ok", "/livez is 200"),
        ("127.0.0.1", b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", "FAIL", "/livez is 503: its checks stopped"),
        ("127.0.0.1", b"SSH-2.0-OpenSSH_9.2\r\n", "FAIL", "nothing answers at 127.0.0.1"),
    ],
    ids=["live", "at a wildcard", "stuck", "another server"],
)
def test_public_listener_is_asked_whether_the_checks_go_on(host: str, answer: bytes, level: str, said: str) -> None:
    with _answering(answer) as server:
        settings = _settings(public_listen=f"{host}:{server.getsockname()[1]}")
        (found,) = sidecar_findings.of_public_listener(settings)
    assert (found.what, found.level) == ("public", level)
    assert said in found.sentence


def test_public_listener_with_tls_is_not_asked() -> None:
    tls = TlsConfig(tls_cert="/c", tls_listeners="page,public")
    assert [*sidecar_findings.of_public_listener(Config()._replace(tls=tls))] == []


PAGE = (Path(__file__).parent / "pages" / "micrometer.txt").read_bytes()


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
    target = sidecar_findings.target(url) if config is None else None
    return asyncio.run(sidecar_findings.of_page(config or AppConfig(), target))


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
        sidecar_findings.target("app:8080")
