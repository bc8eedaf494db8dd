"""The daemon from its settings to its exit code, in this process: the log, the signals, and what it refuses."""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import socket
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from harness.composition import on_any_port
from harness.waiting import wait_for
from sidecar.app import daemon
from sidecar.app.run_lock import usable_directory
from sidecar.net.listening import CannotListenError, naming_setting
from sidecar.runlock import ConcurrencyLimit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sidecar.config.settings import Config


@pytest.fixture(autouse=True)
def process_as_before() -> Iterator[None]:
    root, thresholds, raises = logging.getLogger(), gc.get_threshold(), logging.raiseExceptions
    handlers, level = [*root.handlers], root.level
    yield
    assert gc.isenabled()
    gc.unfreeze()
    gc.set_threshold(*thresholds)
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.raiseExceptions = raises


def _run(config: Config, log: Path, monkeypatch: pytest.MonkeyPatch, *, until: str) -> int:
    """The exit code of a daemon that gets SIGTERM as soon as its log has this word."""

    def end() -> None:
        wait_for(lambda: until in log.read_text(), timeout_s=60, what=f"the log says {until}")
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, lambda *_: None)  # should the daemon not have taken it over
    ender = threading.Thread(target=end, daemon=True)
    try:
        with log.open("w") as stream:
            monkeypatch.setattr(sys, "stderr", stream)
            ender.start()
            gc.disable()  # as at its start, until it serves
            return daemon.main(config)
    finally:
        ender.join(60)
        signal.signal(signal.SIGTERM, before)


def test_every_line_of_the_log_names_the_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = {"instance": "a", "stop_drain": "0s"}
    log = tmp_path / "log"
    assert _run(on_any_port(flags), log, monkeypatch, until="there is no shared store") == 0
    lines = log.read_text().splitlines()
    assert any("listening" in line for line in lines)
    assert {(line["service"], line["instance"]) for line in map(json.loads, lines)} == {("app", "a")}


def test_daemon_ends_while_a_name_server_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped, answered = threading.Event(), threading.Event()
    resolve = socket.getaddrinfo

    def hang(host: Any, *more: Any, **options: Any) -> Any:
        if host == "redis.example":
            stopped.wait(10)
            answered.set()
            raise socket.gaierror(socket.EAI_NONAME, "")
        return resolve(host, *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    config = on_any_port({"redis_url": "redis://redis.example", "redis_timeout": "100ms", "stop_drain": "0s"})
    try:
        assert _run(config, tmp_path / "log", monkeypatch, until="store unreachable") == 0
        assert not answered.is_set()
    finally:
        stopped.set()


def test_daemon_that_is_not_needed_ends_well(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    directory = run_dir / "lock"
    usable_directory(directory)
    main = ConcurrencyLimit(directory, "main")
    assert main.acquire() is not None
    assert daemon.main(on_any_port({"run_lock": str(directory)})) == 0
    main.release()


def _refusal(config: Config, capfd: pytest.CaptureFixture[str]) -> str:
    """The line that a daemon writes which cannot start."""
    assert daemon.main(config) == 2
    (line,) = capfd.readouterr().err.splitlines()
    return str(line)


@pytest.mark.parametrize("listener", ["public", "local", "agent"])
def test_address_in_use_is_one_line_that_names_the_setting_and_exit_2(
    capfd: pytest.CaptureFixture[str], listener: str
) -> None:
    config = on_any_port({"instance": "a"})
    with socket.create_server(("127.0.0.1", 0)) as taken:
        at = f"127.0.0.1:{taken.getsockname()[1]}"
        there: dict[str, Any] = {f"{listener}_listen": at}
        said = _refusal(config._replace(server=config.server._replace(**there)), capfd)
    assert said == f"health-arbiter: ARBITER_{listener.upper()}_LISTEN: cannot listen on {at}: address already in use"


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("none/app.sock", "no such file or directory"),
        ("directory", "address already in use"),
        ("taken", "address already in use"),
    ],
)
def test_socket_that_cannot_be_made_is_one_line_and_exit_2(
    run_dir: Path, capfd: pytest.CaptureFixture[str], path: str, complaint: str
) -> None:
    (run_dir / "directory").mkdir()
    with socket.socket(socket.AF_UNIX) as taken:
        taken.bind(str(run_dir / "taken"))
        taken.listen()
        said = _refusal(on_any_port({"instance": "a", "socket": str(run_dir / path)}), capfd)
    assert said == f"health-arbiter: ARBITER_SOCKET: cannot listen on {run_dir / path}: {complaint}"


def test_host_that_the_resolver_does_not_know_is_told_in_its_words() -> None:
    with pytest.raises(CannotListenError) as caught, naming_setting("X", "a:1"):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    assert str(caught.value) == "X: cannot listen on a:1: name or service not known"
