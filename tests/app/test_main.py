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
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.composition import on_any_port
from harness.waiting import wait_for
from sidecar.app import daemon
from sidecar.config.slices import Config


@pytest.fixture(autouse=True)
def process_as_before() -> Iterator[None]:
    root, thresholds, raises = logging.getLogger(), gc.get_threshold(), logging.raiseExceptions
    handlers, level = [*root.handlers], root.level
    yield
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
            return daemon.main(config)
    finally:
        ender.join(60)
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("style", ["json", "console"])
@pytest.mark.parametrize("level", ["info", "warning"])
def test_log_has_the_format_and_the_level_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, style: str, level: str
) -> None:
    flags = {"instance": "a", "stop_drain": "0s", "log_format": style, "log_level": level}
    log = tmp_path / "log"
    assert _run(on_any_port(flags), log, monkeypatch, until="there is no shared store") == 0
    lines = log.read_text().splitlines()
    assert any("listening" in line for line in lines) is (level == "info")
    if style == "json":
        assert {(line["service"], line["instance"]) for line in map(json.loads, lines)} == {("app", "a")}
    else:
        assert all(line[2] == ":" for line in lines)


def test_address_in_use_is_one_line_and_exit_2(capfd: pytest.CaptureFixture[str]) -> None:
    config = on_any_port({"instance": "a"})
    with socket.create_server(("127.0.0.1", 0)) as taken:
        at = f"127.0.0.1:{taken.getsockname()[1]}"
        assert daemon.main(config._replace(server=config.server._replace(public_listen=at))) == 2
    said = f"health-arbiter: ARBITER_PUBLIC_LISTEN: cannot listen on {at}: address already in use\n"
    assert capfd.readouterr().err.endswith(said)
