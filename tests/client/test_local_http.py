"""Requests to a listener on loopback or a unix path, and what the outcome of each is."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.descriptors import no_free_descriptor
from harness.ports import free_port
from harness.waiting import wait_for
from sidecar.client import local_http
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


def _post(http: LocalHttp, body: bytes = b"[1]", now: float = 0.0, timeout_s: float = 60.0) -> Outcome:
    return http.post("/errors", body, now, timeout_s)


NO_SIDECAR = "it is not the local listener of a sidecar"


@pytest.mark.parametrize(
    ("answer", "outcome", "fault"),
    [
        (ACCEPTED, Outcome.SENT, ""),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", Outcome.FULL, ""),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", Outcome.USELESS, f"ADDRESS answers 404: {NO_SIDECAR}"),
        (b"\x15\x03\x01\x00\x02\x02\x16", Outcome.USELESS, f"ADDRESS answers without HTTP: {NO_SIDECAR}"),
        (b"", Outcome.SENT, ""),
        (None, Outcome.SENT, ""),
    ],
    ids=["accepted", "too many wait", "another server", "TLS", "closed without an answer", "hung"],
)
def test_outcome_is_that_of_the_answer(answer: bytes | None, outcome: Outcome, fault: str, serve: Serve) -> None:
    server = serve(answer)
    http = LocalHttp(listen=server.address)
    assert _post(http, timeout_s=0.05 if answer is None else 60.0) is outcome
    wait_for(lambda: server.bodies, timeout_s=60, what="the server has read it")
    head = b"POST /errors HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 3\r\n\r\n"
    assert server.bodies == [head + b"[1]"]
    assert http.fault == fault.replace("ADDRESS", server.address)


def test_unix_socket_comes_first_and_the_address_takes_over(serve: Serve, run_dir: Path) -> None:
    path, tcp = run_dir / "arbiter.sock", serve()
    http = LocalHttp(str(path), tcp.address)
    assert _post(http) is Outcome.SENT
    unix = serve(path=path)
    assert _post(http) is Outcome.SENT
    assert [len(tcp.bodies), len(unix.bodies)] == [1, 1]


OFF = {"ARBITER_LOCAL_LISTEN": "off"}


@pytest.mark.parametrize(
    ("environ", "addresses"),
    [
        (OFF, None),
        ({"ARBITER_LOCAL_LISTEN": "FREE"}, "FREE"),
        (OFF | {"ARBITER_SOCKET": "/nonexistent"}, "/nonexistent"),
        (OFF | {"ARBITER_SOCKET": "/" + "x" * 200}, "/" + "x" * 200),
        (OFF | {"ARBITER_SOCKET": "/a\x00b"}, "/a\x00b"),
        ({"ARBITER_LOCAL_LISTEN": "FREE", "ARBITER_SOCKET": "/none"}, "/none and FREE"),
        *(
            ({"ARBITER_LOCAL_LISTEN": bad}, f"{bad}, which is no address of numbers")
            for bad in (
                f"{socket.gethostname()}:9180",
                "9180",
                *map("127.0.0.1:{}".format, ("", 0, 65536)),
                ":9",
                "\x00:1",
            )
        ),
    ],
)
def test_addresses_are_those_of_the_settings_and_need_no_resolver(
    environ: dict[str, str], addresses: str | None
) -> None:
    free = f"127.0.0.1:{free_port()}"
    http = LocalHttp.of({name: value.replace("FREE", free) for name, value in environ.items()})
    assert _post(http) is (Outcome.USELESS if addresses is None else Outcome.AWAY)
    assert http.fault == ("" if addresses is None else f"no sidecar answers at {addresses.replace('FREE', free)}")


def test_default_address_is_that_of_the_sidecar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_http, "_exchanged", lambda *asked: f"HTTP/1.1 {asked[1][1]} ".encode())
    http = LocalHttp.of({})
    _post(http)
    assert http.fault.startswith("127.0.0.1:9180 answers 918")


@pytest.mark.parametrize("listen", ["LocalHost:{}", "0.0.0.0:{}", "[::ffff:127.0.0.1]:{}"])
def test_other_ways_to_write_loopback(listen: str, serve: Serve) -> None:
    assert _post(LocalHttp(listen=listen.format(serve().address.rpartition(":")[2]))) is Outcome.SENT


def test_sidecar_that_is_away_is_left_alone_for_a_while(serve: Serve, run_dir: Path) -> None:
    path = run_dir / "arbiter.sock"
    http = LocalHttp(str(path))
    assert _post(http) is Outcome.AWAY
    serve(path=path)
    assert [_post(http, now=now) for now in (0.9 * RETRY_S, RETRY_S)] == [Outcome.AWAY, Outcome.SENT]


def test_app_without_a_free_descriptor_finds_no_sidecar_and_goes_on(serve: Serve) -> None:
    http = LocalHttp(listen=serve().address)
    with no_free_descriptor():
        assert _post(http) is Outcome.AWAY


def test_address_is_read_without_a_free_descriptor() -> None:
    """In a process that has not read a name of a host yet, so that its tables for names are not loaded."""
    program = """
import resource
from sidecar.client.local_http import LocalHttp
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
http = LocalHttp(listen="127.0.0.1:9")
print(http.post("/heartbeat", b"", 0.0, 1.0), http.fault)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=90, check=False)
    assert done.stdout == "Outcome.AWAY no sidecar answers at 127.0.0.1:9\n", done


def test_reports_leave_from_another_thread_and_the_caller_does_not_wait(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.client.reporting.TIMEOUT_S", 0.05)  # it never answers
    emitter, callers = Emitter(lambda: Traced(listen=serve(None).address)), set()

    class Traced(LocalHttp):
        def post(self, path: str, body: bytes, now: float, timeout_s: float) -> Outcome:
            callers.add(threading.get_ident())
            return super().post(path, body, now, timeout_s)

    for _ in range(100):
        emitter.take(HEARTBEAT, 1)
    wait_for(lambda: emitter.stats() == (100, 0, 0), timeout_s=60, what="all is handed over")
    assert threading.get_ident() not in callers
