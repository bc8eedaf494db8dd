"""The health answers before the daemon runs: in this process, and from exec on in processes of their own."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.certificates import Authority
from harness.ports import free_port
from harness.waiting import wait_for
from sidecar.app import early_health
from sidecar.app.early_health import MAX_WAITING, PATHS, EarlyHealth
from sidecar.config.settings import load
from sidecar.controller import state_file
from sidecar.server.health import OUR_FAILURE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.children import StartSidecar
    from harness.sidecar import Sidecar

TIMEOUT_S = 30
LATCH = {"claim_id": "c-1", "reason": "5 server errors", "at": 1_700_000_000.0}
MEMORY = {"format": 1, "app": "app/a", "app_start": None, "incarnation": "life-1", "latch": None}


class _Early:
    """Early health answers on a free port, with these settings."""

    def __init__(self, **settings: str) -> None:
        self.port = free_port()
        given = {"public_listen": f"127.0.0.1:{self.port}", "service": "app", "instance": "a", **settings}
        source, sink = os.pipe()
        self.health = EarlyHealth(source)
        self.health.start()
        with os.fdopen(sink, "w") as pipe:
            json.dump(load(given, {}).model_dump(), pipe)
        assert self.health.config() is not None

    def connect(self) -> socket.socket:
        """A connection, once the listener is open."""
        return wait_for(lambda: socket.create_connection(("127.0.0.1", self.port)), timeout_s=60, what="it listens")

    def ask(self, request: bytes) -> bytes:
        """The whole response to a request on a connection of its own."""
        with self.connect() as connection:
            connection.settimeout(TIMEOUT_S)
            connection.sendall(request)
            return b"".join(iter(lambda: connection.recv(4096), b""))


@contextmanager
def _early(**settings: str) -> Iterator[_Early]:
    interval_s = sys.getswitchinterval()
    early = _Early(**settings)
    sockets: list[socket.socket] = []
    try:
        yield early
    finally:
        for group in early.health.stop():
            sockets += group
        for each in sockets:
            each.close()
    assert sys.getswitchinterval() == interval_s


def _get(path: str, method: str = "GET", version: str = "1.1") -> bytes:
    return f"{method} {path} HTTP/{version}\r\nHost: a\r\n\r\n".encode()


def _write_state(directory: Path, latch: object) -> None:
    state_file.path_of(directory, "app/a").write_text(json.dumps(MEMORY | {"latch": latch}))


# -- what it answers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(PATHS))
@pytest.mark.parametrize(("method", "version"), [("GET", "1.1"), ("GET", "1.0"), ("HEAD", "1.1")])
def test_poll_gets_the_answer_of_a_daemon_that_knows_nothing(
    tmp_path: Path, path: str, method: str, version: str
) -> None:
    _write_state(tmp_path, None)
    with _early(state_dir=str(tmp_path)) as early:
        head, _, body = early.ask(_get(path, method, version)).partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert status == f"HTTP/{version} {OUR_FAILURE.status} OK"
    assert headers.items() >= {**OUR_FAILURE.headers, "Content-Length": "3", "Connection": "close"}.items()
    assert body == (OUR_FAILURE.body if method == "GET" else b"")


@pytest.mark.parametrize(
    "sent",
    [
        _get("/livez"),
        _get("/health?a=b"),
        _get("/health", "OPTIONS"),
        _get("/health") * 2,
        _get("/health")[:-2],
        b"\x16\x03\x01 no HTTP\r\n\r\n",
        b"POST /health HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n",
    ],
    ids=["probe", "query", "method", "pipelined", "half a head", "no HTTP", "body"],
)
def test_anything_else_waits_for_the_daemon_with_every_byte(sent: bytes) -> None:
    early = _Early()
    with early.connect() as connection:
        connection.sendall(sent)
        assert early.ask(_get("/health")).startswith(b"HTTP/1.1 200")  # it goes on answering
        (listening,), (waiting,) = early.health.stop()
        with listening, waiting:
            assert waiting.recv(4096) == sent


def test_imports_give_way_to_polls_until_the_daemon_takes_over() -> None:
    interval_s = sys.getswitchinterval()
    with _early() as early:
        assert early.ask(_get("/health")).startswith(b"HTTP/1.1 200")
        assert sys.getswitchinterval() < interval_s / 5


def test_daemon_waits_for_the_socket_that_is_being_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    may_bind, bind = threading.Event(), early_health._bind
    monkeypatch.setattr(early_health, "STOP_S", 0.01)
    monkeypatch.setattr(early_health, "_bind", lambda config: may_bind.wait(TIMEOUT_S) and bind(config))
    early, returned = _Early(), list[list[socket.socket]]()
    stopping = threading.Thread(target=lambda: returned.extend(early.health.stop()))
    stopping.start()
    assert returned == []
    may_bind.set()
    stopping.join(TIMEOUT_S)
    (listening,), _ = returned
    listening.close()


def test_no_poll_is_answered_any_more_once_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_health, "STOP_S", 60.0)
    with _early() as early:
        assert early.ask(_get("/health")).startswith(b"HTTP/1.1 200")
        early.health.stop()
        assert early.health._is_over.is_set()


def test_many_that_wait_are_left_in_the_backlog() -> None:
    early = _Early()
    connections = [early.connect() for _ in range(MAX_WAITING + 10)]
    (listening,), waiting = early.health.stop()
    for each in (listening, *waiting, *connections):
        each.close()
    assert len(waiting) <= MAX_WAITING


# -- when it answers nothing ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["latch", "garbage", "no file", "fifo"])
def test_container_that_was_culled_or_may_have_been_gets_no_answer(tmp_path: Path, content: str) -> None:
    path = state_file.path_of(tmp_path, "app/a")
    if content == "latch":
        _write_state(tmp_path, LATCH)
    elif content == "fifo":
        os.mkfifo(path)
    elif content == "garbage":
        path.write_bytes(b"\x00garbage")
    else:
        path.mkdir()
    with _early(state_dir=str(tmp_path)) as early:
        early.health.join(TIMEOUT_S)  # it has nothing more to do
        with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", early.port)):
            pass


def test_disk_that_hangs_holds_up_neither_the_daemon_nor_its_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = threading.Event()
    monkeypatch.setattr(state_file, "has_latch", lambda _path: hanging.wait(TIMEOUT_S) and False)
    monkeypatch.setattr(early_health, "STOP_S", 0.01)
    early = _Early(state_dir=str(tmp_path))
    (bound,), waiting = early.health.stop()
    with bound:
        assert waiting == []
        hanging.set()
        early.health.join(TIMEOUT_S)
        with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", early.port)):
            pass


@pytest.mark.parametrize("kind", ["run lock", "addresses", "TLS"])
def test_public_listener_that_is_not_for_everybody_is_left_to_the_daemon(tmp_path: Path, kind: str) -> None:
    cert, key = Authority(tmp_path, "authority").sign("sidecar")
    settings = {
        "run lock": {"run_lock": str(tmp_path)},
        "addresses": {"public_allow": "192.0.2.1"},
        "TLS": {"tls_cert": str(cert), "tls_key": str(key), "tls_listeners": "public"},
    }
    early = _Early(**settings[kind])
    assert early.health.stop() == ([], [])


# -- from exec on -----------------------------------------------------------------------------------------------------


def _outcomes(one: Sidecar) -> Counter[str]:
    """Start it and poll from exec on, until the daemon has answered: the statuses, and the polls without one."""
    outcomes, serves = Counter[str](), threading.Event()

    def poll() -> None:
        while not serves.is_set():
            try:
                outcomes[str(one.health()[0])] += 1
            except ConnectionRefusedError:
                time.sleep(0.001)
            except (OSError, HTTPException) as error:
                outcomes[type(error).__name__] += 1

    poller = threading.Thread(target=poll)
    poller.start()
    try:
        one.start()  # it is ready when the daemon has answered
    finally:
        serves.set()
        poller.join()
    one.kill()
    return outcomes


@pytest.mark.process
@pytest.mark.fresh
@pytest.mark.parametrize("starts", [1, pytest.param(10, marks=pytest.mark.site)])
def test_from_exec_on_a_container_is_up_and_a_culled_one_never(sidecar: StartSidecar, starts: int) -> None:
    one, culled = sidecar.unstarted("one"), sidecar.unstarted("culled")
    path = state_file.path_of(Path(str(culled.settings["state_dir"])), "app/culled")
    path.write_text(json.dumps(MEMORY | {"app": "app/culled", "latch": LATCH}))
    for _ in range(starts):
        assert {*_outcomes(one)} == {"200"}
        assert {*_outcomes(culled)} <= {"503"}
        assert json.loads(path.read_text())["latch"] is not None
