"""One error recorded in the window: the ring of buckets beside the array of the article. No server is involved.

``python -m bench.window ring|array COUNT`` measures in its own process, for its memory.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from bench import machine
from bench.table import Row, at_most, at_most_of_baseline, number, spread
from sidecar.core.measure.window import RollingCounts

if TYPE_CHECKING:
    from bench.rig import Rig

RECORDS: Final = 10_000_000
ARRAY_RECORDS: Final = 1_000_000
A_TICK: Final = 100_000
WINDOW_S: Final = 60
KINDS: Final = ("redis", "db", "timeout", "unknown")
GROWTH_MIB: Final = 1.0


def measure(rig: Rig) -> list[Row]:
    """Time and memory of ten million records; the growing array has only one million."""
    from bench.rig import alternate, medians  # noqa: PLC0415 - the worker measures its memory without them

    count = RECORDS // 10 if rig.quick else RECORDS
    ring = partial(_work, rig, "ring", count)
    array = partial(_work, rig, "array", ARRAY_RECORDS)
    rounds = list(alternate(rig.rounds, ring, array))
    ring_ns, ring_mib, ring_us = medians([mine for mine, _ in rounds])
    array_ns, array_mib, array_us = medians([theirs for _, theirs in rounds])
    rig.notes.append(f"a record: ring {spread([mine[0] for mine, _ in rounds])} ns; array holds {ARRAY_RECORDS:,}")
    rig.notes.append(f"a query of the window: ring {number(ring_us)} us, array {number(array_us)} us")
    return [
        Row("a ping recorded in the window", "ns", ring_ns, array_ns, at_most_of_baseline(1)),
        Row(
            f"memory growth over {count:,} records (array: {ARRAY_RECORDS:,})",
            "MiB",
            ring_mib,
            array_mib,
            at_most(GROWTH_MIB, "MiB"),
        ),
    ]


def _work(rig: Rig, window: str, count: int) -> tuple[float, ...]:
    return tuple(rig.worker("window", window, str(count)))


def ring(count: int) -> tuple[float, float, float]:
    """Nanoseconds a record, growth in MiB and microseconds a query; a second has ``A_TICK`` records."""
    window = RollingCounts(WINDOW_S, 0)
    kinds = KINDS * (A_TICK // len(KINDS))
    _record_by_ring(window, kinds, range(1, WINDOW_S + 1))  # fill the ring, so that later growth is a leak
    before_mib = machine.rss_mib(os.getpid())
    begun = time.perf_counter_ns()
    _record_by_ring(window, kinds, range(WINDOW_S + 1, WINDOW_S + 1 + count // A_TICK))
    took_ns = time.perf_counter_ns() - begun
    growth_mib = machine.rss_mib(os.getpid()) - before_mib
    if window.total != A_TICK * (WINDOW_S - 1):
        raise RuntimeError(f"the window counts {window.total}")
    begun = time.perf_counter_ns()
    for _ in range(1000):
        window.by_key()
    return took_ns / count, growth_mib, (time.perf_counter_ns() - begun) / 1e6


def _record_by_ring(window: RollingCounts, kinds: tuple[str, ...], seconds: range) -> None:
    record = window.record
    for second in seconds:
        for kind in kinds:
            record(kind)
        window.turn(second)


def array(count: int) -> tuple[float, float, float]:
    """The same for the array of the article: the time of each error, and a query over all of them."""
    times: list[float] = []
    before_mib = machine.rss_mib(os.getpid())
    begun = time.perf_counter_ns()
    now = time.time
    append = times.append
    for _ in range(count):
        append(now())
    took_ns = time.perf_counter_ns() - begun
    growth_mib = machine.rss_mib(os.getpid()) - before_mib
    begun = time.perf_counter_ns()
    since = now() - WINDOW_S
    if len([at for at in times if at > since]) != count:
        raise RuntimeError("the array lost an error")
    return took_ns / count, growth_mib, (time.perf_counter_ns() - begun) / 1e3


if __name__ == "__main__":
    worker = {"ring": ring, "array": array}[sys.argv[1]]
    sys.stdout.write(json.dumps(worker(int(sys.argv[2]))))
