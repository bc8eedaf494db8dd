"""CPU of an idle sidecar that is polled, beside a bare aiohttp server with the same polls."""

from __future__ import annotations

import time
from statistics import median
from typing import Final

from bench import machine, wire
from bench.rig import Rig
from bench.table import Row, below, number, spread

WINDOWS: Final = 4
WINDOW_S: Final = 15
TARGET_PERCENT: Final = 0.2
_WARM_S: Final = 2.0


def measure(rig: Rig) -> list[Row]:
    """Poll health once a second, each time on a new connection, and metrics once a window."""
    sidecar = rig.start(rig.sidecar("idle", redis_url=rig.redis.url))
    bare = rig.start(rig.baseline("bare"))
    addresses: tuple[wire.Address, ...] = (sidecar.address("public"), bare.address)
    pids = (sidecar.pid, bare.pid)
    _poll(addresses, "/metrics")
    time.sleep(_WARM_S)
    ticks = [machine.cpu_ticks_s(pid) for pid in pids]
    seconds = 3 if rig.quick else WINDOW_S
    windows = [_window(addresses, pids, seconds) for _ in range(WINDOWS)]
    ours, theirs = zip(*windows, strict=True)
    total_s = WINDOWS * seconds
    by_ticks = [(machine.cpu_ticks_s(pid) - tick) / total_s * 100 for pid, tick in zip(pids, ticks, strict=True)]
    rig.notes.append(
        f"idle CPU: sidecar {spread(ours)} %, bare {spread(theirs)} % over {WINDOWS} windows of {seconds} s; "
        f"by clock ticks {number(by_ticks[0])} % and {number(by_ticks[1])} %"
    )
    sidecar.stop()
    bare.stop()
    return [Row("idle CPU of a core", "%", median(ours), median(theirs), below(TARGET_PERCENT, "%"))]


def _window(addresses: tuple[wire.Address, ...], pids: tuple[int, ...], seconds: int) -> list[float]:
    """The percentage of a core that each process used."""
    begun, before = time.perf_counter(), [machine.cpu_ns(pid) for pid in pids]
    for second in range(seconds):
        _poll(addresses, "/health")
        if second == seconds // 2:
            _poll(addresses, "/metrics")
        time.sleep(max(0.0, begun + second + 1 - time.perf_counter()))
    took_ns = (time.perf_counter() - begun) * machine.NS_PER_S
    return [(machine.cpu_ns(pid) - was) / took_ns * 100 for pid, was in zip(pids, before, strict=True)]


def _poll(addresses: tuple[wire.Address, ...], path: str) -> None:
    for address in addresses:
        answer = wire.ask_once(address, wire.request("GET", path, close=True))
        if wire.status(answer) != 200:
            raise RuntimeError(f"{path} answered {answer[:200]!r}")
