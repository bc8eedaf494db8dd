"""Hostile clients against the real daemon: health answers in bounded memory, and refusals are counted.

Each attack takes a second, or a minute with ``ATTACK_LONG=1``. The figures are printed (``-s``); the bounds are for a
busy machine.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import pytest

from bench.table import percentile
from harness.attacks import ATTACKS, Attacking
from harness.sidecar import Sidecar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.children import Children, StartSidecar

ATTACKED_S = 60.0 if os.environ.get("ATTACK_LONG") else 1.0
MOST_MIB = 96
MOST_MS = {50: 300.0, 99: 2_000.0}
POLL = b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
FEW_FILES = 64


@pytest.fixture(scope="module")
def target(shared_sidecar: StartSidecar) -> Sidecar:
    """One sidecar for all attacks, so that each meets the leftovers of the ones before."""
    return shared_sidecar("target", error_limit="1000000000")


def _peak_mib(one: Sidecar) -> float:
    """The peak of its memory."""
    status = Path(f"/proc/{one.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _files(one: Sidecar) -> int:
    return len(list(Path(f"/proc/{one.pid}/fd").iterdir()))


def _counted(one: Sidecar, listener: str, word: str) -> float:
    return one.metrics().get(f'arbiter_refusals_total{{listener="{listener}",reason="{word}"}}', 0.0)


def _poll(one: Sidecar) -> bytes:
    with socket.create_connection(one.address("public"), 5) as connection:
        connection.sendall(POLL)
        return b"".join(iter(lambda: connection.recv(4096), b""))


def _polls_ms(one: Sidecar, seconds: float) -> Iterator[float]:
    """The duration of polls on new connections, for this many seconds."""
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        begun = time.perf_counter()
        assert _poll(one).startswith(b"HTTP/1.1 200 ")
        yield (time.perf_counter() - begun) * 1e3
        time.sleep(0.005)


@pytest.mark.parametrize("name", ATTACKS)
def test_health_is_answered_in_bounded_memory_and_refusals_are_counted(target: Sidecar, name: str) -> None:
    attack = ATTACKS[name]
    before = {word: _counted(target, attack.listener, word) for word in attack.words}
    files = _files(target)
    with Attacking(name, target.address(attack.listener)):
        taken = list(_polls_ms(target, ATTACKED_S))
        files_meanwhile = _files(target)
    p50, p99 = median(taken), percentile(taken, 99)
    print(f"{name}: {len(taken)} polls, p50 {p50:.2f} ms, p99 {p99:.2f} ms, peak {_peak_mib(target):.1f} MiB")  # noqa: T201
    assert (p50 <= MOST_MS[50], p99 <= MOST_MS[99]) == (True, True), (p50, p99)
    assert _peak_mib(target) < MOST_MIB
    assert files_meanwhile <= files + 300
    for word, count in before.items():
        assert _counted(target, attack.listener, word) > count, word
    assert target.metrics()['arbiter_failures_total{where="listener"}'] == 0


def test_reports_are_counted_after_all_attacks(target: Sidecar) -> None:
    before = target.verdict()["evidence"]["errors"]
    target.post_error(3)
    assert target.verdict()["evidence"]["errors"] >= min(3, before + 3)
    assert target.agent_line() == "up ready 100%\n"


# -- few file descriptors -----------------------------------------------------------------------------------


class FewFiles(Sidecar):
    """A sidecar with a low limit of open files; ``hard``: it may raise the limit to this."""

    hard = FEW_FILES

    def _command(self) -> list[str]:
        return ["prlimit", f"--nofile={FEW_FILES}:{self.hard}", *super()._command()]


@pytest.fixture
def limited(run_dir: Path, children: Children) -> Sidecar:
    one: Sidecar = children.adopt(FewFiles(run_dir, "few", error_limit="1000"))
    return one.start()


@pytest.mark.parametrize("listener", ["public", "local", "agent"])
def test_idle_connections_leave_descriptors_for_health_and_reports(limited: Sidecar, listener: str) -> None:
    with ExitStack() as held:
        for _ in range(60):
            held.enter_context(socket.create_connection(limited.address(listener), 5))
        for _ in range(5):
            assert _poll(limited).startswith(b"HTTP/1.1 200 ")
            limited.post_error()
        assert _files(limited) < FEW_FILES
        assert limited.agent_line() == "up ready 100%\n"


def test_soft_limit_of_files_is_raised_to_the_hard_limit(run_dir: Path, children: Children) -> None:
    one = FewFiles(run_dir, "raised")
    one.hard = 300
    children.adopt(one).start()
    limits = Path(f"/proc/{one.pid}/limits").read_text()
    assert limits.partition("Max open files")[2].split()[:2] == ["300", "300"]
