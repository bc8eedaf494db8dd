"""Reports over HTTP to the sidecar's local listener, which an app without StatsD uses."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.ports import free_port
from harness.waiting import wait_for
from sidecar.client import lines, local_http
from sidecar.client.emitter import QUEUE_LIMIT, Emitter, Increment
from sidecar.client.lines import Sum
from sidecar.client.local_http import LocalHttp
from sidecar.client.outlet import Outcome
from sidecar.core.types import ErrorLevel, ErrorReport, Results
from sidecar.inputs.report_bodies import read_errors, read_results

ACCEPTED = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
RESET = b"reset"
Serve = Callable[..., "Server"]


class Server:
    """Answers every connection with the same bytes; with None it never answers."""

    def __init__(self, listener: socket.socket, answer: bytes | None) -> None:
        self.requests: list[tuple[str, bytes]] = []
        self._listener, self._answer = listener, answer
        self._held: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            with connection:
                data = connection.recv(65_536)
                if not data:
                    return  # that was ``close``
                head, _, body = data.partition(b"\r\n\r\n")
                self.requests.append((head.split()[1].decode(), body))
                if self._answer is None:
                    self._held.append(connection.dup())
                else:
                    connection.sendall(self._answer)

    def close(self) -> None:
        with socket.socket(self._listener.family) as last:
            last.connect(self._listener.getsockname())
        self._thread.join()
        for each in (*self._held, self._listener):
            each.close()


@pytest.fixture
def serve(run_dir: Path) -> Iterator[Serve]:  # noqa: ARG001 - the servers are stopped before it is removed
    """Starts servers: on a unix path, else on a port of loopback."""
    servers = []

    def start(answer: bytes | None = ACCEPTED, path: Path | None = None) -> Server:
        listener = socket.socket(socket.AF_INET if path is None else socket.AF_UNIX)
        listener.bind(("127.0.0.1", 0) if path is None else str(path))
        listener.listen()
        server = Server(listener, answer)
        servers.append(server)
        server.address = "{}:{}".format(*listener.getsockname()) if path is None else str(path)  # type: ignore[attr-defined]
        return server

    yield start
    for server in servers:
        server.close()


def _sums(*sums: tuple[lines.StatsdSeries, int, str | None]) -> dict[lines.StatsdSeries, Sum]:
    kept = {}
    for series, count, message in sums:
        kept[series] = total = Sum(0.0)
        total.count, total.message = count, message
    return kept


def _to(server: Server) -> LocalHttp:
    return LocalHttp({"ARBITER_LOCAL_LISTEN": server.address})  # type: ignore[attr-defined]


def test_sums_are_the_bodies_that_the_listener_reads() -> None:
    error = lines.errors("server_error", "redis", "f@g", "life-1", fatal=True)
    kept = _sums(
        (error, 3, "lost; \u20ac"),
        (lines.OK, 4, None),
        (lines.FAILED, 1, None),
        (lines.IN_FLIGHT, 1, "7"),
        (lines.LOAD, 1, "0.5"),
        (lines.HEARTBEAT, 2, None),
        (lines.errors("investigation", None, None, None), 2_000_000, None),
    )
    requests = dict(packet.partition(b"\r\n\r\n")[::2] for packet, _ in LocalHttp({}).packets(kept))
    bodies = {head.split()[1].decode(): body for head, body in requests.items()}
    assert read_errors(bodies["/errors"]) == (
        ErrorReport(3, ErrorLevel.SERVER_ERROR, "redis", "lost; \u20ac", "f@g", fatal=True, app_start="life-1"),
        ErrorReport(1_000_000, ErrorLevel.INVESTIGATION),
    )
    assert read_results(bodies["/results"]) == Results(4, 1, 7, 0.5)
    assert bodies["/heartbeat"] == b""
    assert all(b"Content-Length: %d" % len(body) in head for head, body in requests.items())


def test_no_body_is_larger_than_the_listener_takes() -> None:
    series = [lines.errors("server_error", f"{at:064}", "f" * 64, "a" * 64) for at in range(320)]
    packets = [*LocalHttp({}).packets(_sums(*((one, 1, "\U0001f600" * lines.MESSAGE_LIMIT) for one in series)))]
    assert sum(len(counts) for _, counts in packets) == 320
    assert max(len(packet) for packet, _ in packets) < 64 * 1024


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (ACCEPTED, Outcome.SENT),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", Outcome.FULL),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", Outcome.REFUSED),
        (b"\x15\x03\x01\x00\x02\x02\x16", Outcome.REFUSED),
        (b"", Outcome.SENT),
        (None, Outcome.SENT),
    ],
    ids=["accepted", "too many wait", "refused", "TLS", "closed without an answer", "hung"],
)
def test_outcome_is_that_of_the_answer(answer: bytes | None, outcome: Outcome, serve: Serve) -> None:
    server = serve(answer)
    http = _to(server)
    http.timeout_s = 0.05 if answer is None else 60.0
    assert http.send(b"POST /errors HTTP/1.1\r\n\r\n[]", 0.0) is outcome
    wait_for(lambda: server.requests, timeout_s=60, what="the server has read it")
    assert server.requests == [("/errors", b"[]")]


def test_whichever_answers_gets_the_report_the_unix_socket_first(serve: Serve, run_dir: Path) -> None:
    path, tcp = run_dir / "arbiter.sock", serve()
    http = LocalHttp({"ARBITER_SOCKET": str(path), "ARBITER_LOCAL_LISTEN": tcp.address})  # type: ignore[attr-defined]
    http.timeout_s = 60.0
    assert http.send(b"POST /errors HTTP/1.1\r\n\r\n1", 0.0) is Outcome.SENT
    unix = serve(path=path)
    assert http.send(b"POST /errors HTTP/1.1\r\n\r\n2", 0.0) is Outcome.SENT
    assert (tcp.requests, unix.requests) == ([("/errors", b"1")], [("/errors", b"2")])


@pytest.mark.parametrize(
    ("environ", "addresses"),
    [
        ({}, "127.0.0.1:9180"),
        ({"ARBITER_LOCAL_LISTEN": "[::1]:9280"}, "::1:9280"),
        ({"ARBITER_LOCAL_LISTEN": "off"}, ""),
        ({"ARBITER_LOCAL_LISTEN": "web.example:9180"}, "web.example:9180, which is no address of numbers"),
        ({"ARBITER_SOCKET": "/run/a.sock"}, "/run/a.sock and 127.0.0.1:9180"),
    ],
    ids=["default", "address", "off", "name", "socket"],
)
def test_addresses_are_those_of_the_settings(environ: dict[str, str], addresses: str) -> None:
    assert str(LocalHttp(environ)) == addresses


def test_sidecar_that_is_away_is_left_alone_for_a_while() -> None:
    http = LocalHttp({"ARBITER_LOCAL_LISTEN": f"127.0.0.1:{free_port()}"})
    assert http.send(b"x", 0.0) is Outcome.AWAY
    assert http.send(b"x", local_http.RETRY_S * 0.9) is Outcome.AWAY
    assert LocalHttp({"ARBITER_LOCAL_LISTEN": "off"}).send(b"x", 0.0) is Outcome.NOWHERE


def _emitter(http: LocalHttp) -> Emitter:
    return Emitter(lambda: http)


def test_reports_leave_from_another_thread_and_the_caller_does_not_wait(serve: Serve) -> None:
    server = serve(None)  # it never answers
    callers: set[int] = set()

    class Traced(LocalHttp):
        def send(self, request: bytes, now: float) -> Outcome:
            callers.add(threading.get_ident())
            return super().send(request, now)

    http = Traced({"ARBITER_LOCAL_LISTEN": server.address})  # type: ignore[attr-defined]
    http.timeout_s = 0.05
    emitter = _emitter(http)
    many = 2 * QUEUE_LIMIT  # more than wait in the queue while a request is under way
    for _ in range(many):
        emitter.take(Increment(lines.errors("server_error", "redis", None, None), 1))
    wait_for(lambda: emitter.stats() == (many, 0, 0), timeout_s=60, what="all is handed over")
    assert threading.get_ident() not in callers
    # The server may read the last request only after its client has given up.
    wait_for(
        lambda: sum(json.loads(body)[0]["count"] for _, body in list(server.requests)) == many,
        timeout_s=60,
        what="all has arrived",
    )


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "answers 400: it is not the local listener of a sidecar"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "answers 404: it is not the local listener of a sidecar"),
        (b"\x15\x03\x01\x00\x02\x02\x16", "answers without HTTP: it is not the local listener of a sidecar"),
    ],
    ids=["the public port", "another server", "TLS"],
)
def test_refused_reports_are_dropped_and_one_line_says_so(
    answer: bytes, said: str, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(answer)
    emitter = _emitter(_to(server))
    for dropped in (5, 10):
        emitter.take(Increment(lines.HEARTBEAT, 5))
        emitter.close()
        wait_for(lambda count=dropped: emitter.stats() == (0, 0, count), timeout_s=60, what="they are dropped")  # type: ignore[misc]
    wait_for(lambda: caplog.messages, timeout_s=60, what="it is said")
    assert caplog.messages == [f"{server.address} {said}"]  # type: ignore[attr-defined]
