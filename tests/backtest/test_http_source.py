"""A Prometheus and a sidecar over HTTP: what is asked, and what is said when the answer is no."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from sidecar.backtest import ledger_past
from sidecar.backtest.http_source import HttpSource
from sidecar.backtest.past import PastError
from sidecar.backtest.prometheus_past import LOOKBACK, MOST_POINTS, PastCounters, read_api
from sidecar.config.selectors import parse_selectors

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
    name = "errors_total" if "errors" in query["query"] else "requests_total"
    result = [{"metric": {"__name__": name, "instance": "a"}, "values": values}]
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


COUNTERS = PastCounters(
    parse_selectors("errors_total"),
    parse_selectors("requests_total"),
    since_s=BEGIN,
    until_s=BEGIN + 15 * (2 * MOST_POINTS - 1),
    step_s=15.0,
)


def test_long_time_is_asked_in_parts_below_the_limit_of_prometheus(server: Server, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    server.answers = [(200, matrix)] * 4
    parts: list[float] = []
    past = read_api(HttpSource(f"{server.url}/prom/", str(tmp_path / "token")), COUNTERS, parts.append)
    container = past.containers["a"]
    assert container.errors["unknown"].total == container.requests.total == 2 * MOST_POINTS - 1
    assert past.notices.lines() == []
    assert past.unknowns == [LOOKBACK]
    assert (parts, parts[-1]) == (sorted(parts), 1.0)
    assert {path for path, _, _ in server.asked} == {"/prom/api/v1/query_range"}
    assert {token for _, _, token in server.asked} == {f"Bearer {TOKEN}"}
    assert all(float(one["end"]) - float(one["start"]) < 15 * 11_000 for _, one, _ in server.asked)


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
        (200, "hello", "byte 0: expected {"),
        (200, {"status": "success", "data": {"resultType": "matrix", "result": []}}, "no series fits --requests"),
    ],
)
def test_answer_that_is_no_range_is_a_sentence_with_the_server(
    server: Server, status: int, body: object, sentence: str
) -> None:
    server.answers = [(status, body)] * 4
    with pytest.raises(PastError, match=r"http://127\.0\.0\.1:") as raised:
        read_api(HttpSource(server.url), COUNTERS)
    assert sentence in str(raised.value)
    assert all(path != "/elsewhere" for path, _, _ in server.asked)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("ftp://host/", "takes http:// or https:// and a host"),
        ("http://ann:secret@host/", "must have no login"),
        ("http://host/?a=b", r"must have no login, \? or #"),
        ("http://127.0.0.1:1", "http://127.0.0.1:1/api/v1/query_range: connection refused"),
    ],
)
def test_bad_address_is_named_without_its_secrets(url: str, sentence: str) -> None:
    with pytest.raises(PastError, match=sentence) as raised:
        read_api(HttpSource(url), COUNTERS)
    assert "secret" not in str(raised.value)


def test_missing_token_is_named(tmp_path: Path) -> None:
    with pytest.raises(PastError, match="away: holds no token of at least 16 bytes"):
        HttpSource("http://host", str(tmp_path / "away"))


def test_ledger_of_a_sidecar_is_read_page_by_page(server: Server) -> None:
    pages = [
        [
            {
                "id": "1-0",
                "at": BEGIN,
                "what": "suspect",
                "instance": "a",
                "detail": "9 server errors in 60 s, the limit is",
            }
        ],
        [{"id": "2-0", "at": BEGIN + 200, "what": "recovered", "instance": "a"}],
        [],
    ]
    server.answers = [(200, {"events": page, "stored": True}) for page in pages]
    past = ledger_past.read_api(HttpSource(server.url), 3600.0)
    assert past.containers["a"].errors["unknown"].total == 9 + 9 * 140 // 60
    assert [query.get("after", "") for _, query, _ in server.asked] == ["", "1-0", "2-0"]
    server.answers = [(200, {"events": [], "stored": False})]
    with pytest.raises(PastError, match="the shared store is away"):
        ledger_past.read_api(HttpSource(server.url), 3600.0)
