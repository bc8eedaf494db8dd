"""Garbage at every listener of a real sidecar is refused and counted; nothing else is counted or lost."""

from __future__ import annotations

import json
import random
import socket
from itertools import product
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from harness.children import StartSidecar
    from harness.sidecar import Sidecar

pytestmark = pytest.mark.process

SEED = 20261120
BODIES = [
    b"{",
    b"null",
    b"[]",
    b"7",
    b'"redis"',
    b'{"count":true}',
    b'{"count":-1}',
    b'{"count":1e3}',
    b'{"count":NaN}',
    b'{"cuont":1}',
    b'{"level":"fatal"}',
    b'{"kind":"a b"}',
    b'{"kind":null}',
    b'{"app_start":7}',
    b'{"fatal":"yes"}',
    b'[{"count":1},{"count":"1"}]',
    b"[" * 30_000,
    b'{"message":"' + b"x" * 5_000 + b'"}',
    b"\xff\xfe",
    b"x" * 70_000,
]


@pytest.fixture
def one(sidecar: StartSidecar, run_dir: Path) -> Sidecar:
    return sidecar("one", error_limit="1000", error_window="1h", socket=str(run_dir / "app.sock"))


def _errors(one: Sidecar) -> int:
    counted: int = one.verdict()["evidence"]["errors"]
    return counted


def _refusals(one: Sidecar) -> float:
    return sum(value for name, value in one.metrics().items() if name.startswith("arbiter_refusals_total"))


def test_each_invalid_report_is_a_4xx_with_a_reason_and_counts_nothing(one: Sidecar) -> None:
    for number, (listener, body) in enumerate(product(("local", "socket"), BODIES)):
        reply = one.request(listener, "POST", "/errors", body)
        assert 400 <= reply.status < 500, (listener, body[:24])
        assert set(reply.json()) == {"error"}
        assert _refusals(one) == number + 1, (listener, body[:24])
    assert _errors(one) == 0
    for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}):
        assert one.request("local", "POST", "/errors", headers=headers).status == 403
    assert one.request("public", "POST", "/errors").status == 405
    assert _errors(one) == 0
    one.post_error(2)
    assert _errors(one) == 2


def _send(address: tuple[str, int] | str, data: bytes) -> bytes:
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as connection:
        connection.settimeout(30)
        connection.connect(address)
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: connection.recv(65536), b""))
        except OSError:
            return b""


def test_noise_at_every_listener_changes_no_count(one: Sidecar) -> None:
    noise = random.Random(SEED)
    listeners: list[tuple[str, int] | str] = [one.address("local"), one.address("public"), one.address("agent")]
    listeners.append(str(one.settings["socket"]))
    for _ in range(40):
        for listener in listeners:
            answer = _send(listener, noise.randbytes(noise.randrange(1, 3_000)) + b"\r\n\r\n")
            assert not answer.startswith((b"HTTP/1.1 2", b"HTTP/1.0 2", b"HTTP/1.1 5"))
        one.post_error(1, kind="mysql")
    assert one.verdict()["evidence"]["kinds"] == {"mysql": 40}
    assert one.health() == (200, "up\n")
    assert one.agent_line() == "up ready 100%\n"
    assert one.metrics()['arbiter_failures_total{where="listener"}'] == 0


@pytest.mark.site
def test_thousand_kinds_do_not_grow_the_window_or_the_metrics(one: Sidecar) -> None:
    for start in range(0, 1000, 100):
        kinds = [{"kind": f"k{number}"} for number in range(start, start + 100)]
        assert one.request("local", "POST", "/errors", json.dumps(kinds)).status == 202
    kinds_now = one.verdict()["evidence"]["kinds"]
    assert len(kinds_now) <= 33
    assert sum(kinds_now.values()) == 1000
    assert len([name for name in one.metrics() if name.startswith("arbiter_window_errors{")]) <= 33
