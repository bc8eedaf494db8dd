"""Cores, priority, and the CPU time and memory of processes (Linux, /proc)."""

from __future__ import annotations

import os
import platform
import re
import resource
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

_PRIORITY = 50


@contextmanager
def on_cores(cores: set[int]) -> Iterator[None]:
    """Run on these cores for a while; processes started meanwhile stay there."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def with_priority() -> Iterator[None]:
    """Run before every ordinary process of the same core, if that is allowed (root)."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)


def cpu_s(pid: int) -> float:
    """CPU time in seconds of all current threads; ``/proc/PID/stat`` counts in ticks of 10 ms."""
    total_ns = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError):
            total_ns += int((task / "schedstat").read_text().split()[0])
    return total_ns / 1e9


def cpu_of_ended_children_s() -> float:
    """CPU time in seconds of all children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def rss_mib(pid: int) -> float:
    """Resident memory now: all mapped pages, shared or not."""
    return _mib(pid, "VmRSS")


def peak_mib(pid: int) -> float:
    """The most resident memory since its start."""
    return _mib(pid, "VmHWM")


def _mib(pid: int, name: str) -> float:
    found = re.search(rf"^{name}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) / 1024


class Neighbours:
    """The CPU time that other processes have used since this object was made."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._others_s = _others_s()

    def share(self) -> float:
        """In cores; children of ours that still run count as others."""
        return max(0.0, _others_s() - self._others_s) / (time.monotonic() - self._begun)


def _others_s() -> float:
    """Busy time of all cores, less what we and our ended children took."""
    user, nice, system, _idle, _iowait, irq, softirq, *_ = Path("/proc/stat").read_text().split()[1:11]
    busy = sum(map(int, (user, nice, system, irq, softirq))) / os.sysconf("SC_CLK_TCK")
    return busy - sum(os.times()[:4])


def described(tree: Path) -> str:
    """Date, machine, interpreter, libraries and commit, in one line."""
    libraries = ", ".join(f"{name} {version(name)}" for name in ("aiohttp", "redis", "prometheus-client"))
    command = ["git", "-C", str(tree), "describe", "--always", "--dirty"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    processor = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores of {processor[1] if processor else platform.machine()}, "
        f"Linux {platform.release()}, Python {platform.python_version()}, {libraries}, commit {commit}"
    )
