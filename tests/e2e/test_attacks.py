"""Hostile clients against the real daemon: health is answered in bounded memory, and refusals are counted.

How quickly it is answered meanwhile is a question for the benchmark; here every poll has to be answered.
"""

from __future__ import annotations

import socket
import ssl
import time
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.attacks import ATTACKS, Attacking, HostileServer
from harness.certificates import Authority
from harness.ports import free_port
from harness.sidecar import Setting, Sidecar
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.children import Children

pytestmark = pytest.mark.process

WORST = ("upgrade_behind_a_body", "polls_unread", "chunks_local", "bodies_held", "idle", "restarts", "large_datagrams")
"""One attack for each bound: bodies, answers, memory, connections, reports, datagrams. The others are site cases."""

MOST_CPU_S = 2.0
"""Five pages took 0.1 s."""

POLLS = 40
POLL_S = 60
MOST_MIB = 96
DATA_LIMIT = 160 * 1024 * 1024
"""The daemon has 45 MiB of data when idle; stacks of threads count in full. The worst attack took 760 MiB once."""

POLL = b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


class Limited(Sidecar):
    """A sidecar that gets no memory beyond ``DATA_LIMIT``."""

    def _command(self) -> list[str]:
        return ["prlimit", f"--data={DATA_LIMIT}", *super()._command()]


@pytest.fixture(scope="module")
def target(shared_dir: Path, shared_children: Children) -> Sidecar:
    """One sidecar for all attacks, so that each meets the leftovers of the ones before."""
    settings = {"statsd_listen": f"127.0.0.1:{free_port()}", "statsd_socket": str(shared_dir / "statsd.sock")}
    one = Limited(shared_dir, "target", error_limit=10**9, socket=str(shared_dir / "app.sock"), **settings)
    return shared_children.adopt(one).start()


def _files(one: Sidecar) -> int:
    return len(list(Path(f"/proc/{one.pid}/fd").iterdir()))


def _counted(one: Sidecar, listener: str, word: str) -> float:
    return one.metrics().get(f'arbiter_refusals_total{{listener="{listener}",reason="{word}"}}', 0.0)


def _failures(one: Sidecar) -> float:
    """Exceptions of the sidecar's own."""
    metrics = one.metrics()
    return sum(metrics[f'arbiter_failures_total{{where="{where}"}}'] for where in ("listener", "step"))


def _poll(one: Sidecar) -> bytes:
    with socket.create_connection(one.address("public"), POLL_S) as connection:
        connection.sendall(POLL)
        return b"".join(iter(lambda: connection.recv(4096), b""))


def _check_polls(one: Sidecar, polls: int = POLLS) -> None:
    """Each of so many polls on new connections is answered."""
    for _ in range(polls):
        assert _poll(one).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "name", [name if name in WORST else pytest.param(name, marks=pytest.mark.site) for name in ATTACKS]
)
def test_health_is_answered_in_bounded_memory_and_refusals_are_counted(target: Sidecar, name: str) -> None:
    attack = ATTACKS[name]
    before = {word: _counted(target, attack.listener, word) for word in attack.words}
    files = _files(target)
    with Attacking(name, target.address(attack.listener)):
        _check_polls(target)
        files_meanwhile = _files(target)
        for word, count in before.items():
            wait_for(
                lambda word=word, count=count: _counted(target, attack.listener, word) > count,  # type: ignore[misc]
                timeout_s=60,
                what=f"it is refused: {word}",
            )
    report = '{"level": "client_error"}'
    wait_for(
        lambda: target.request("local", "POST", "/errors", report).status == 202, timeout_s=60, what="a report is taken"
    )
    assert target.peak_mib() < MOST_MIB
    assert files_meanwhile <= files + 340
    assert _failures(target) == 0


def test_handshakes_that_one_address_does_not_finish_hold_up_no_other(run_dir: Path, children: Children) -> None:
    authority = Authority(run_dir, "ours")
    cert, key = authority.sign("health")
    one = children.adopt(Sidecar(run_dir, tls_cert=cert, tls_key=key, tls_listeners="public"))
    context = ssl.create_default_context(cafile=str(authority.ca))

    def check_s() -> float:
        begun = time.monotonic()
        with (
            socket.create_connection(one.address("public"), POLL_S) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
        ):
            connection.sendall(POLL)
            assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
        return time.monotonic() - begun

    one.start()
    with Attacking("idle_elsewhere", one.address("public")):
        wait_for(check_s, timeout_s=60, what="it is answered")
        took_s = sorted(check_s() for _ in range(30))
    assert took_s[24] <= 0.2, "five of them may meet a busy machine"
    assert one.peak_mib() < MOST_MIB


def test_hostile_app_and_hostile_redis_take_little_time_of_the_processor(run_dir: Path, children: Children) -> None:
    """Polls are answered while five hostile pages are read, and one reply."""
    with HostileServer() as server:
        settings: dict[str, Setting] = {
            "scrape_url": f"http://127.0.0.1:{server.port}/metrics",
            "scrape_errors": HostileServer.selector,
            "check_interval": "200ms",
            "redis_timeout": "150ms",
            "redis_url": f"redis://127.0.0.1:{server.port}",
            "beat_interval": "1s",
        }
        one = children.adopt(Limited(run_dir, "beset", error_limit=10**9, **settings)).start()

        def is_over() -> bool:
            _check_polls(one, 10)
            return server.scrapes >= 5 and server.commands > 0

        used_s = one.cpu_s()
        wait_for(is_over, timeout_s=60, what="the hostile pages and the reply are read")
        assert one.cpu_s() - used_s < MOST_CPU_S
        assert one.peak_mib() < MOST_MIB
        assert all(map(isfinite, one.metrics().values()))
        assert one.health()[0] == 200
