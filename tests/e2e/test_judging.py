"""Every detector with a real sidecar: from the report of the app to the health answer."""

from __future__ import annotations

import json
import re
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness.children import StartSidecar
    from harness.sidecar import Setting, Sidecar

pytestmark = pytest.mark.process

SELDOM: Final[dict[str, Setting]] = {"settle": "0s", "drain": "0s", "check_interval": "60s"}
"""Checks so rare that no cull comes from one, but from the reports."""


def _post(one: Sidecar, path: str, **fields: object) -> None:
    reply = one.request("local", "POST", path, json.dumps(fields) if fields else None)
    assert reply.status == 202, reply.body


def _await_status(one: Sidecar, status: int, timeout_s: float = 60) -> str:
    """Wait for this status of the health; the body."""
    wait_for(lambda: one.health()[0] == status, timeout_s=timeout_s, what=f"{one.name} answers {status}")
    return one.health()[1]


def _rules(one: Sidecar) -> list[str]:
    return [reason["rule"] for reason in one.verdict()["reasons"]]


def test_each_detector_culls_at_its_limit_and_not_before(sidecar: StartSidecar) -> None:
    rows: dict[str, dict[str, Setting]] = {
        "fatal": {},
        "ratio": {},
        "row": {"consecutive_limit": 3},
        "kinds": {"kind_limits": "redis:2,mysql:5", "ignore_kinds": "cache"},
        "heard": {"check_interval": "100ms", "heartbeat_timeout": "1s"},
        "silent": {"check_interval": "100ms", "heartbeat_timeout": "1s"},
    }
    fatal, ratio, row, kinds, heard, silent = (sidecar(name, **{**SELDOM, **rows[name]}) for name in rows)
    _post(heard, "/heartbeat")

    fatal.post_error(1, level="client_error", fatal=True)
    fatal.post_error(4)
    _post(ratio, "/results", ok=3, failed=16)
    for fields in ({"failed": 2}, {"ok": 1}, {"failed": 2}):
        _post(row, "/results", **fields)
    kinds.post_error(20, kind="cache", fatal=True)
    kinds.post_error(1, kind="redis")
    kinds.post_error(2, kind="mysql")
    for one in (fatal, ratio, row, kinds):
        assert one.health()[0] == 200, one.name

    fatal.post_error(1, kind="oom", fatal=True)
    assert "the app reported a fatal error, one is enough" in _await_status(fatal, 503)
    assert _rules(fatal) == ["fatal", "errors"]
    _post(ratio, "/results", ok=1)
    assert "16 of 20 requests failed in 60 s, that is 80 %, the limit is 50 %" in _await_status(ratio, 503)
    assert _rules(ratio) == ["ratio"]
    _post(row, "/results", failed=1)
    assert "3 requests failed in a row" in _await_status(row, 503)
    kinds.post_error(1, kind="redis")
    assert "2 server errors of kind redis in 60 s, its limit is 2" in _await_status(kinds, 503)
    assert kinds.verdict()["evidence"]["levels"] == {"ignored": 20}
    missed = re.search(r"no heartbeat for ([\d.]+) s, the limit is 1 s", _await_status(heard, 503))
    assert missed
    assert float(missed[1]) >= 1
    assert silent.health() == (200, "up\n"), "a heartbeat is missed only after the first"


@contextmanager
def _life_connection(path: Path) -> Iterator[None]:
    """Hold a connection to ``/life`` open, as an app does."""
    with socket.socket(socket.AF_UNIX) as held:
        held.settimeout(5)
        held.connect(str(path))
        held.sendall(b"POST /life HTTP/1.1\r\nHost: arbiter\r\nContent-Length: 0\r\n\r\n")
        assert held.recv(4096).startswith(b"HTTP/1.1 200 OK\r\n")
        yield


@pytest.mark.parametrize("app_start", ["boot-1", pytest.param(None, marks=pytest.mark.site)], ids=["named", "nameless"])
def test_culled_app_that_closes_its_life_connections_is_followed_by_a_clean_start(
    sidecar: StartSidecar, run_dir: Path, app_start: str | None
) -> None:
    path = run_dir / "app.sock"
    one = sidecar("life", **SELDOM, socket=path)
    with _life_connection(path), _life_connection(path):
        one.post_error(5, app_start=app_start)
        _await_status(one, 503)
    wait_for(lambda: one.verdict()["state"] == "up", timeout_s=60, what="the next incarnation is up")
    verdict = one.verdict()
    assert (verdict["latched"], verdict["evidence"]["errors"], verdict["app_start"]) == (False, 0, None)
    assert one.health() == (200, "up\n")
    with _life_connection(path):
        one.post_error(5)
        _await_status(one, 503)
    assert one.metrics()["arbiter_culls_total"] == 2


def test_app_that_survives_a_restart_of_its_sidecar_stays_down(sidecar: StartSidecar, run_dir: Path) -> None:
    path = run_dir / "app.sock"
    one = sidecar("latched", **SELDOM, socket=path)
    with _life_connection(path):
        one.post_error(5)
        _await_status(one, 503)
        one.stop()
        one.start()
        assert one.health()[0] == 503
    assert one.verdict()["latched"] is True
