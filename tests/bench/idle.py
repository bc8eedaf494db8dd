"""CPU time of an idle sidecar that is polled and scraped, beside a bare aiohttp server with the same polls."""

from __future__ import annotations

import time
from statistics import median
from typing import Final

from bench import machine, wire
from bench.rig import Rig
from bench.table import Row, at_most, number, spread

WINDOWS: Final = 4
WINDOW_S: Final = 15
HOUR_S: Final = 3600
TARGET_S: Final = 3.2
"""CPU seconds an hour."""

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
    windows = [_window(addresses, pids, WINDOW_S) for _ in range(1 if rig.quick else WINDOWS)]
    ours, theirs = zip(*windows, strict=True)
    total_s = len(windows) * WINDOW_S
    by_ticks = [(machine.cpu_ticks_s(pid) - tick) / total_s * HOUR_S for pid, tick in zip(pids, ticks, strict=True)]
    rig.notes.append(
        f"idle CPU: sidecar {spread(ours)} s/h, bare {spread(theirs)} s/h over {len(windows)} windows of {WINDOW_S} s; "
        f"by clock ticks {number(by_ticks[0])} and {number(by_ticks[1])} s/h"
    )
    sidecar.stop()
    bare.stop()
    return [Row("idle CPU an hour", "s", median(ours), median(theirs), at_most(TARGET_S, "s"))]


def _window(addresses: tuple[wire.Address, ...], pids: tuple[int, ...], seconds: int) -> list[float]:
    """The CPU seconds an hour that each process used."""
    begun, before = time.perf_counter(), [machine.cpu_ns(pid) for pid in pids]
    for second in range(seconds):
        _poll(addresses, "/health")
        if second == seconds // 2:
            _poll(addresses, "/metrics")
        time.sleep(max(0.0, begun + second + 1 - time.perf_counter()))
    took_ns = (time.perf_counter() - begun) * machine.NS_PER_S
    return [(machine.cpu_ns(pid) - was) / took_ns * HOUR_S for pid, was in zip(pids, before, strict=True)]


def _poll(addresses: tuple[wire.Address, ...], path: str) -> None:
    for address in addresses:
        answer = wire.ask_once(address, wire.request("GET", path, close=True))
        if wire.status(answer) != 200:
            raise RuntimeError(f"{path} answered {answer[:200]!r}")
