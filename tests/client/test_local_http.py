"""Requests to a listener on loopback or a unix path, and what the outcome of each is."""

from __future__ import annotations

import resource
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from harness.ports import free_port
from harness.waiting import wait_for
from sidecar.client.local_http import RETRY_S, LocalHttp, Outcome
from sidecar.client.reporting import Emitter
from sidecar.client.sums import HEARTBEAT

ACCEPTED = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"


class Server:
    """Answers every connection with the same bytes; with None it never answers. ``bodies`` has what it was sent."""

    def __init__(self, answer: bytes | None, path: Path | None) -> None:
        self.bodies: list[bytes] = []
        self._answer = answer
        self._held: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_INET if path is None else socket.AF_UNIX)
        self._listener.bind(("127.0.0.1", 0) if path is None else str(path))
        self._listener.listen()
        self.address = "{}:{}".format(*self._listener.getsockname()) if path is None else str(path)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            with connection:
                if not (data := connection.recv(65_536)):
                    return  # that was ``close``
                self.bodies.append(data)
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


Serve = Callable[..., Server]


@pytest.fixture
def serve(run_dir: Path) -> Iterator[Serve]:  # noqa: ARG001 - the servers are stopped before it is removed
    """Starts servers: on a unix path, else on a port of loopback."""
    servers = []

    def start(answer: bytes | None = ACCEPTED, path: Path | None = None) -> Server:
        servers.append(Server(answer, path))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.mark.parametrize(
    ("answer", "outcome", "refusal"),
    [
        (ACCEPTED, Outcome.SENT, ""),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", Outcome.FULL, ""),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", Outcome.REFUSED, "answers 404: it is not the local listener of a sidecar"),
        (b"\x15\x03\x01\x00\x02\x02\x16", Outcome.REFUSED, "answers without HTTP: it is not the local listener"),
        (b"", Outcome.SENT, ""),
        (None, Outcome.SENT, ""),
    ],
    ids=["accepted", "too many wait", "another server", "TLS", "closed without an answer", "hung"],
)
def test_outcome_is_that_of_the_answer(answer: bytes | None, outcome: Outcome, refusal: str, serve: Serve) -> None:
    server = serve(answer)
    http = LocalHttp(listen=server.address)
    http.timeout_s = 0.05 if answer is None else 60.0
    assert http.post("/errors", b"[1]", 0.0) is outcome
    wait_for(lambda: server.bodies, timeout_s=60, what="the server has read it")
    head = b"POST /errors HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 3\r\n\r\n"
    assert server.bodies == [head + b"[1]"]
    assert http.refusal.startswith(f"{server.address} {refusal}" if refusal else "")
    assert bool(http.refusal) == bool(refusal)


def test_unix_socket_comes_first_and_the_address_takes_over(serve: Serve, run_dir: Path) -> None:
    path, tcp = run_dir / "arbiter.sock", serve()
    http = LocalHttp(str(path), tcp.address)
    http.timeout_s = 60.0
    assert http.post("/errors", b"1", 0.0) is Outcome.SENT
    unix = serve(path=path)
    assert http.post("/errors", b"2", 0.0) is Outcome.SENT
    assert [len(tcp.bodies), len(unix.bodies)] == [1, 1]


@pytest.mark.parametrize(
    ("environ", "addresses", "outcome"),
    [
        ({"ARBITER_LOCAL_LISTEN": "off"}, "", Outcome.NOWHERE),
        ({"ARBITER_LOCAL_LISTEN": "FREE"}, "FREE", Outcome.AWAY),
        ({"ARBITER_LOCAL_LISTEN": "off", "ARBITER_SOCKET": "/nonexistent"}, "/nonexistent", Outcome.AWAY),
        ({"ARBITER_LOCAL_LISTEN": "off", "ARBITER_SOCKET": "/" + "x" * 200}, "/" + "x" * 200, Outcome.AWAY),
        ({"ARBITER_LOCAL_LISTEN": "off", "ARBITER_SOCKET": "/a\x00b"}, "/a\x00b", Outcome.AWAY),
        ({"ARBITER_LOCAL_LISTEN": "FREE", "ARBITER_SOCKET": "/none"}, "/none and FREE", Outcome.AWAY),
        *(
            ({"ARBITER_LOCAL_LISTEN": bad}, f"{bad}, which is no address of numbers", Outcome.AWAY)
            for bad in (
                f"{socket.gethostname()}:9180",
                "9180",
                "127.0.0.1:",
                "127.0.0.1:0",
                "127.0.0.1:65536",
                ":9180",
                "\x00:1",
            )
        ),
    ],
)
def test_addresses_are_those_of_the_settings_and_need_no_resolver(
    environ: dict[str, str], addresses: str, outcome: Outcome
) -> None:
    free = f"127.0.0.1:{free_port()}"
    http = LocalHttp.of({name: value.replace("FREE", free) for name, value in environ.items()})
    assert str(http) == addresses.replace("FREE", free)
    assert http.post("/errors", b"", 0.0) is outcome


def test_default_address_is_that_of_the_sidecar() -> None:
    assert str(LocalHttp.of({})) == "127.0.0.1:9180"


@pytest.mark.parametrize("listen", ["LocalHost:{}", "0.0.0.0:{}", "[::ffff:127.0.0.1]:{}"])
def test_other_ways_to_write_loopback(listen: str, serve: Serve) -> None:
    server = serve()
    http = LocalHttp(listen=listen.format(server.address.rpartition(":")[2]))
    assert http.post("/errors", b"1", 0.0) is Outcome.SENT


def test_sidecar_that_is_away_is_left_alone_for_a_while(serve: Serve, run_dir: Path) -> None:
    path = run_dir / "arbiter.sock"
    http = LocalHttp(str(path))
    http.timeout_s = 60.0
    assert http.post("/errors", b"1", 0.0) is Outcome.AWAY
    serve(path=path)
    assert http.post("/errors", b"1", RETRY_S * 0.9) is Outcome.AWAY
    assert http.post("/errors", b"1", RETRY_S) is Outcome.SENT


def test_app_without_a_free_descriptor_finds_no_sidecar_and_goes_on(serve: Serve) -> None:
    http = LocalHttp(listen=serve().address)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        assert http.post("/errors", b"1", 0.0) is Outcome.AWAY
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_reports_leave_from_another_thread_and_the_caller_does_not_wait(serve: Serve) -> None:
    server, callers = serve(None), set()

    class Traced(LocalHttp):
        def post(self, path: str, body: bytes, now: float) -> Outcome:
            callers.add(threading.get_ident())
            return super().post(path, body, now)

    http = Traced(listen=server.address)
    http.timeout_s = 0.05  # it never answers
    emitter = Emitter(lambda: http)
    for _ in range(100):
        emitter.take(HEARTBEAT, 1)
    with suppress(AssertionError):
        wait_for(lambda: emitter.stats() == (100, 0, 0), timeout_s=60, what="all is handed over")
    assert emitter.stats() == (100, 0, 0)
    assert threading.get_ident() not in callers
