"""Cores, priority, and the CPU time and memory of processes (Linux, /proc)."""

from __future__ import annotations

import os
import platform
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

NS_PER_S: Final = 1_000_000_000
_PRIORITY: Final = 50
_TOP: Final = Path(__file__).parents[2]


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
def with_priority() -> Iterator[bool]:
    """Run before every ordinary process of the same core, if that is allowed (root); whether it is."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
    except OSError:
        yield False
        return
    try:
        yield True
    finally:
        os.sched_setscheduler(0, *before)


def cpu_ns(pid: int) -> int:
    """CPU time in nanoseconds of all current threads; ``cpu_ticks_s`` is too coarse for a minute."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError):
            total += int((task / "schedstat").read_text().split()[0])
    return total


def cpu_ticks_s(pid: int) -> float:
    """CPU time in seconds, user and system, in steps of a clock tick (10 ms)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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


def rss_mib(pid: int) -> float:
    """Resident memory: all mapped pages, shared or not."""
    return _kib(Path(f"/proc/{pid}/status"), "VmRSS:") / 1024


def pss_mib(pid: int) -> float:
    """Proportional memory: a page shared by n processes counts for 1/n. Needs the same user."""
    return _kib(Path(f"/proc/{pid}/smaps_rollup"), "Pss:") / 1024


def _kib(file: Path, name: str) -> int:
    return next(int(line.split()[1]) for line in file.read_text().splitlines() if line.startswith(name))


def today() -> str:
    """The date, in UTC."""
    return datetime.now(UTC).date().isoformat()


def described() -> str:
    """Machine, interpreter, libraries and commit, in one line."""
    options = str(sysconfig.get_config_var("CONFIG_ARGS"))
    build = "PGO" if "--enable-optimizations" in options else "no PGO"
    libraries = ", ".join(f"{name} {version(name)}" for name in ("aiohttp", "redis", "prometheus-client"))
    return (
        f"{os.cpu_count()} cores of {_processor()}, Linux {platform.release()}, "
        f"Python {platform.python_version()} ({build}), {libraries}, commit {_commit()}"
    )


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _commit() -> str:
    command = ["git", "-C", str(_TOP), "describe", "--always", "--dirty"]
    with suppress(OSError):
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    return "unknown"
