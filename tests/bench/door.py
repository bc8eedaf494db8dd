"""The latency of health polls, each on a new connection: idle, and while one of the doors is flooded.

The poller shares its core with the load and has priority (SCHED_FIFO, as root), so that it measures the server and not
the queue for the core.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from bench import machine, wire
from bench.rig import NEVER, Rig, Tree, failed, post_script, rate, wrk
from bench.table import Limit, Row, at_least_of_baseline, at_most, p99

FLOOD_S: Final = 9
WARM_S: Final = 1.5
POLL_S: Final = 6.0
EVERY_S: Final = 0.004
MOST_MIB: Final = 64

Command = list[str]
Flood = Callable[[int, int], Command]
"""The command of a load, by the public and the local port."""


class Polled(NamedTuple):
    """The milliseconds of each poll, polls that failed, what the load says of its failures, and the peak of memory."""

    taken_ms: list[float]
    failures: int
    load: str
    peak_mib: float


def health(rig: Rig) -> Iterator[Row]:
    """Without load; and the throughput of kept connections, beside stock aiohttp."""
    idle = {tree.name: _polled(rig, tree, None) for tree in rig.trees}
    yield from _rows("health, no load", idle, at_most(1.2), at_most(0.4))
    stock, seconds = rig.stock(), 1 if rig.is_quick else 3
    daemons = {tree.name: rig.start(tree, "kept") for tree in rig.trees}

    def a_second(port: int) -> float:
        return rate(wrk(f"http://127.0.0.1:{port}/health", 32, seconds))

    kept = rig.in_turn(lambda tree: a_second(daemons[tree.name].address("public")[1]))
    baseline = [a_second(stock.port) for _ in range(rig.rounds)]
    for server in (stock, *daemons.values()):
        server.stop()
    yield Row("GET /health, 32 kept connections", "/s", kept, at_least_of_baseline(2), baseline)


def floods(rig: Rig) -> Iterator[Row]:
    """While 256 connections flood the public door: kept ones, and new ones."""

    def kept(public: int, _local: int) -> Command:
        return wrk(f"http://127.0.0.1:{public}/health", 256, FLOOD_S)

    def new(public: int, _local: int) -> Command:
        return ["ab", "-q", "-r", "-c256", f"-t{FLOOD_S}", "-n1000000", f"http://127.0.0.1:{public}/health"]

    for words, flood in (("256 kept (wrk)", kept), ("256 new (ab)", new)):
        polled = {tree.name: _polled(rig, tree, flood) for tree in rig.trees}
        yield from _rows(f"health, {words}", polled, at_most(25))


def own_flood(rig: Rig) -> Iterator[Row]:
    """While the app itself floods its local door with 256 connections."""
    script = post_script(rig.directory)

    def flood(_public: int, local: int) -> Command:
        return wrk(f"http://127.0.0.1:{local}/errors", 256, FLOOD_S, script)

    polled = {tree.name: _polled(rig, tree, flood) for tree in rig.trees}
    yield from _rows("health, 256 flood POST /errors", polled, at_most(50), at_most(25))


def _rows(figure: str, polled: dict[str, Polled], most: Limit, median: Limit | None = None) -> Iterator[Row]:
    """The percentiles, the failures and the peak of memory."""
    taken = {name: each.taken_ms for name, each in polled.items()}
    if median:
        yield Row(f"{figure}, p50", "ms", taken, median)
    load = "; ".join(f"{name}: {each.load}" for name, each in polled.items() if each.load)
    yield Row(f"{figure}, p99", "ms", taken, most, of=p99, note=load)
    yield Row(
        f"{figure}, polls that fail", "polls", {name: [each.failures] for name, each in polled.items()}, at_most(0)
    )
    peaks = {name: [each.peak_mib] for name, each in polled.items()}
    yield Row(f"{figure}, most memory", "MiB", peaks, at_most(MOST_MIB))


def _polled(rig: Rig, tree: Tree, flood: Flood | None) -> Polled:
    daemon = rig.start(tree, "health", error_limit=NEVER)
    ports = daemon.address("public")[1], daemon.address("local")[1]
    load = (
        subprocess.Popen(flood(*ports), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) if flood else None
    )
    time.sleep(WARM_S)
    taken, failures = polls(daemon.address("public"), POLL_S / 6 if rig.is_quick else POLL_S)
    said = failed(load.communicate(timeout=60)[0]) if load else ""
    peak = machine.peak_mib(daemon.pid)
    daemon.stop()
    return Polled(taken, failures, said, peak)


def polls(address: wire.Address, seconds: float) -> tuple[list[float], int]:
    """Milliseconds of polls, one each ``EVERY_S`` or as soon as one is answered, and the number of those that fail."""
    request = wire.request("GET", "/health", close=True)
    taken: list[float] = []
    failures = 0
    with machine.with_priority():
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at:
            begun = time.perf_counter()
            try:
                failures += wire.status(wire.ask_once(address, request)) != 200
            except OSError:
                failures += 1
            taken.append((time.perf_counter() - begun) * 1e3)
            time.sleep(max(0.0, begun + EVERY_S - time.perf_counter()))
    return taken, failures
