"""A Prometheus over HTTP: what is asked, and what is said when the answer is no."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from sidecar.backtest.error_counts import ErrorCounts, PastError
from sidecar.backtest.prometheus_range import POINTS, CounterRange, PrometheusServer
from sidecar.cli import application

BEGIN = 1_700_000_000
TOKEN = "a-token-of-20-bytes."


class Server:
    """Answers with ``answers``, each a status and a body or a function of the query; keeps queries and headers."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, object]] = []
        self.asked: list[tuple[str, dict[str, str], str | None]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path, query = urlsplit(self.path).path, dict(parse_qsl(urlsplit(self.path).query))
                server.asked.append((path, query, self.headers["Authorization"]))
                status, body = server.answers.pop(0)
                data = json.dumps(body(query) if callable(body) else body).encode()
                self.send_response(status)
                self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"


@pytest.fixture
def server() -> Iterator[Server]:
    one = Server()
    threading.Thread(target=one.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield one
    one.http.shutdown()
    one.http.server_close()


def matrix(query: dict[str, str]) -> object:
    """One counter that rises by one at each step."""
    start, end, step = (float(query[name]) for name in ("start", "end", "step"))
    times = [start + number * step for number in range(int((end - start) / step) + 1)]
    values = [[time, str(int((time - BEGIN) / step))] for time in times]
    result = [{"metric": {"__name__": "errors_total", "instance": "a"}, "values": values}]
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


def asked(url: str, token_file: str = "") -> ErrorCounts:
    """The errors of two parts of the range, of which the second is one point shorter."""
    prometheus = PrometheusServer.of(url, token_file)
    counts = ErrorCounts(prometheus.place, 60.0, since_s=BEGIN)
    CounterRange(counts).read_api(prometheus, "errors_total", BEGIN + 15 * (2 * POINTS - 2))
    return counts


def test_long_time_is_asked_in_parts(server: Server, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    server.answers = [(200, matrix)] * 2
    container = asked(f"{server.url}/prom/", str(tmp_path / "token")).containers["a"]
    assert container.errors.total() == 2 * POINTS - 2, "one at each step but the first"
    assert {path for path, _, _ in server.asked} == {"/prom/api/v1/query_range"}
    assert {token for _, _, token in server.asked} == {f"Bearer {TOKEN}"}
    assert {query["query"] for _, query, _ in server.asked} == {"errors_total"}
    assert not server.answers


def test_command_asks_for_the_last_day(server: Server) -> None:
    server.answers = [(200, matrix)] * 99
    assert application.run(["backtest", "--prometheus", server.url, "--errors", "errors_total"], {}) == 0
    assert time.time() - float(server.asked[0][1]["start"]) == pytest.approx(86_400, abs=60)


@pytest.mark.parametrize(
    ("status", "body", "sentence"),
    [
        (
            400,
            {"status": "error", "error": "parse error"},
            'HTTP status 400: {"status": "error", "error": "parse error"}',
        ),
        (302, {}, "HTTP status 302"),
        (401, {}, "HTTP status 401"),
        (200, "hello", "is no answer of Prometheus"),
        (200, {"status": "success", "data": {"resultType": "matrix", "result": []}}, "no series since then"),
    ],
)
def test_answer_that_is_no_range_is_a_sentence_with_the_server(
    server: Server, status: int, body: object, sentence: str
) -> None:
    server.answers = [(status, body)] * 4
    with pytest.raises(PastError, match=r"http://127\.0\.0\.1:") as raised:
        asked(server.url)
    assert sentence in str(raised.value)
    assert all(path != "/elsewhere" for path, _, _ in server.asked)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("ftp://host/", "takes http:// or https:// and a host"),
        ("http://ann:secret@host/", "must have no login"),
        ("http://host/?a=b", r"must have no login, \? or #"),
        ("http://127.0.0.1:1", "http://127.0.0.1:1: connection refused"),
    ],
)
def test_bad_address_is_named_without_its_secrets(url: str, sentence: str) -> None:
    with pytest.raises(PastError, match=sentence) as raised:
        asked(url)
    assert "secret" not in str(raised.value)


def test_missing_token_is_named(tmp_path: Path) -> None:
    with pytest.raises(PastError, match="away: holds no token of at least 16 bytes"):
        PrometheusServer.of("http://host", str(tmp_path / "away"))
