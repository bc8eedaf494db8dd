"""Every detector with a real sidecar: from the report of the app to the health answer."""

from __future__ import annotations

import json
import re
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness.children import StartSidecar
    from harness.sidecar import Sidecar

AT_ONCE = {"settle": "0s", "drain": "0s"}
SELDOM = {**AT_ONCE, "check_interval": "60s"}
"""Checks so rare that no early cull comes from one."""


def _post(one: Sidecar, path: str, **fields: object) -> None:
    reply = one.request("local", "POST", path, json.dumps(fields) if fields else None)
    assert reply.status == 202, reply.body


def _await_status(one: Sidecar, status: int, timeout_s: float = 60) -> str:
    """Wait for this status of the health; the body."""
    wait_for(lambda: one.health()[0] == status, timeout_s=timeout_s, what=f"{one.name} answers {status}")
    return one.health()[1]


def _rules(one: Sidecar) -> list[str]:
    return [reason["rule"] for reason in one.verdict()["reasons"]]


def test_one_fatal_error_culls_at_once(sidecar: StartSidecar) -> None:
    one = sidecar("fatal", **SELDOM)
    one.post_error(1, level="client_error", fatal=True)
    one.post_error(4)
    assert one.health()[0] == 200
    one.post_error(1, kind="oom", fatal=True)
    assert "the app reported a fatal error, one is enough" in _await_status(one, 503)
    assert _rules(one) == ["fatal", "errors"]


def test_ratio_of_failed_requests_culls_once_there_are_enough(sidecar: StartSidecar) -> None:
    one = sidecar("ratio", **SELDOM)
    _post(one, "/results", ok=3, failed=16)
    assert one.health()[0] == 200
    _post(one, "/results", ok=1)
    assert "16 of 20 requests failed in 60 s, that is 80 %, the limit is 50 %" in _await_status(one, 503)
    assert _rules(one) == ["ratio"]


def test_failures_in_a_row_cull_and_a_success_between_them_does_not(sidecar: StartSidecar) -> None:
    one = sidecar("row", **SELDOM, consecutive_limit=3)
    for fields in ({"failed": 2}, {"ok": 1}, {"failed": 2}):
        _post(one, "/results", **fields)
    assert one.health()[0] == 200
    _post(one, "/results", failed=1)
    assert "3 requests failed in a row" in _await_status(one, 503)


def test_heartbeat_is_missed_only_after_the_first(sidecar: StartSidecar) -> None:
    settings = {**AT_ONCE, "check_interval": "100ms", "heartbeat_timeout": "2s"}
    heard, silent = sidecar("heard", **settings), sidecar("silent", **settings)
    _post(heard, "/heartbeat")
    missed = re.search(r"no heartbeat for ([\d.]+) s, the limit is 2 s", _await_status(heard, 503))
    assert missed
    assert float(missed[1]) >= 2
    assert silent.health() == (200, "up\n")


def test_kind_has_its_own_limit_and_ignored_kinds_none(sidecar: StartSidecar) -> None:
    one = sidecar("kinds", **SELDOM, kind_limits="redis:2,mysql:5", ignore_kinds="cache")
    one.post_error(20, kind="cache", fatal=True)
    one.post_error(1, kind="redis")
    one.post_error(2, kind="mysql")
    assert one.health()[0] == 200
    one.post_error(1, kind="redis")
    assert "2 server errors of kind redis in 60 s, its limit is 2" in _await_status(one, 503)
    assert one.verdict()["evidence"]["levels"] == {"ignored": 20}


@contextmanager
def _life_connection(path: Path) -> Iterator[None]:
    """Hold a connection to ``/life`` open, as an app does."""
    with socket.socket(socket.AF_UNIX) as held:
        held.settimeout(5)
        held.connect(str(path))
        held.sendall(b"POST /life HTTP/1.1\r\nHost: arbiter\r\nContent-Length: 0\r\n\r\n")
        assert held.recv(4096).startswith(b"HTTP/1.1 200 OK\r\n")
        yield


@pytest.mark.parametrize("app_start", ["boot-1", None], ids=["named", "nameless"])
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
