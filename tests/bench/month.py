"""``python -m bench.month [--days 30]``: a month of a saved Prometheus range through ``health-arbiter backtest``.

It writes 200 instances at 15 s as answers of ``query_range`` (at most 11,000 points a series, so 16 files with gzip),
and plays them on one core. No part of ``python -m bench``, because writing them takes longer than playing.
"""

from __future__ import annotations

import argparse
import gzip
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Final

from bench import machine, table
from bench.table import Row, at_most

INSTANCES: Final = 200
STEP_S: Final = 15
DAY_S: Final = 86_400
MOST_POINTS: Final = 11_000
BEGIN_S: Final = 1_763_800_005
CPU_S: Final = 60
RSS_MIB: Final = 500
HOUR_STEPS: Final = 3600 // STEP_S
SICK_STEPS: Final = 80
"""Steps for which one container fails: 20 minutes, each day another one."""


def errors(instance: int, steps: int) -> Iterator[int]:
    """The counter of an instance, step by step: an error now and then, 20 sick minutes, a restart each week."""
    rng, total, day_steps = Random(instance), 0, DAY_S // STEP_S
    chances = rng.choices((0, 1), (HOUR_STEPS - 1, 1), k=steps)
    for step, stray in enumerate(chances):
        day, within = divmod(step, day_steps)
        is_sick = day % INSTANCES == instance and within < SICK_STEPS
        total = 0 if step % (7 * day_steps) == day_steps // 2 + instance else total + stray + 7 * is_sick
        yield total


def write(directory: Path, days: int) -> list[Path]:
    """Write the answers; return their paths in the order of time."""
    steps = days * DAY_S // STEP_S
    firsts = range(0, steps, MOST_POINTS)
    paths = [directory / f"part{first // MOST_POINTS:02}.json.gz" for first in firsts]
    with ExitStack() as stack:
        files = [stack.enter_context(gzip.open(path, "wt", compresslevel=1)) for path in paths]
        for file in files:
            file.write('{"status":"success","data":{"resultType":"matrix","result":[')
        for instance in range(INSTANCES):
            values = [f'[{BEGIN_S + step * STEP_S},"{total}"]' for step, total in enumerate(errors(instance, steps))]
            for file, first in zip(files, firsts, strict=True):
                points = ",".join(values[first : first + MOST_POINTS])
                metric = f'{{"__name__":"errors_total","instance":"10.0.0.{instance}:80"}}'
                file.write(f'{"," if instance else ""}{{"metric":{metric},"values":[{points}]}}')
        for file in files:
            file.write("]}}")
    return paths


def played(paths: Sequence[Path]) -> tuple[float, float]:
    """Seconds of CPU and MiB of memory of the command. Raises RuntimeError if it fails."""
    words = ["backtest", "--prometheus", str(paths[0]), *map(str, paths[1:]), "--errors", "errors_total"]
    child = os.fork()
    if not child:
        os.execv(sys.executable, [sys.executable, "-m", "sidecar", *words, "--no-article", "--cores", "1"])
    _, status, used = os.wait4(child, 0)
    if status:
        raise RuntimeError(f"backtest ended with {os.waitstatus_to_exitcode(status)}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main(arguments: Sequence[str] | None = None) -> int:
    """Write, play, and print the table; 1 when a target was missed."""
    parser = argparse.ArgumentParser("python -m bench.month", description="Play a month of a saved Prometheus range.")
    parser.add_argument("--days", type=int, default=30, help="fewer for a rough figure")
    days = parser.parse_args(arguments).days
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        cpu_s, rss_mib = played(write(Path(directory), days))
    name = f"backtest of {days} days, {INSTANCES} instances, {STEP_S} s"
    rows = [
        Row(f"{name}: CPU", "s", cpu_s, None, at_most(CPU_S, "s")),
        Row(f"{name}: memory", "MiB", rss_mib, None, at_most(RSS_MIB, "MiB")),
    ]
    sys.stdout.write(f"{machine.today()}, {machine.described()}\n\n{table.markdown(rows, {})}\n")
    return int(any("MISSED" in row.result for row in rows))


if __name__ == "__main__":
    sys.exit(main())
