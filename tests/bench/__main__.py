"""``python -m bench [--quick] [--write] [NAME...]``: measure, and print the table."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bench import (
    client,
    datagrams,
    health,
    idle,
    machine,
    pings,
    reaction,
    redis_cost,
    scrape,
    startup,
    table,
    weights,
    window,
)
from bench.rig import Rig
from bench.table import Row

FIGURES: Final[dict[str, Callable[[Rig], list[Row]]]] = {
    "pings": pings.measure,
    "health": health.measure,
    "startup": startup.measure,
    "reaction": reaction.measure,
    "idle": idle.measure,
    "window": window.measure,
    "client": client.measure,
    "scrape": scrape.measure,
    "datagrams": datagrams.measure,
    "weights": weights.measure,
    "redis": redis_cost.measure,
}
PAGE: Final = Path(__file__).with_name("README.md")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the named figures, or all; 1 when a target was missed."""
    options = _options(arguments)
    # Without bytecode every start would take three times as long.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the children are stopped
    begun = time.monotonic()
    rows, notes = _run(options.names or list(FIGURES), quick=options.quick)
    page = PAGE.read_text()
    results = _results(rows, notes, table.reasons(page))
    sys.stdout.write(results + "\n")
    sys.stderr.write(f"took {time.monotonic() - begun:.0f} s\n")
    if options.write:
        PAGE.write_text(table.with_results(page, results))
    return int(any("MISSED" in row.result for row in rows))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("tests/bench/run", description="Measure the sidecar beside its baselines.")
    parser.add_argument("names", nargs="*", choices=[[], *FIGURES], metavar="NAME", help=", ".join(FIGURES))
    parser.add_argument("--quick", action="store_true", help="short rounds, for development: figures are rough")
    parser.add_argument("--write", action="store_true", help=f"put the results into {PAGE.name}; a full run only")
    options = parser.parse_args(arguments)
    if options.write and (options.quick or options.names):
        parser.error("--write goes with a full run: all figures, not --quick")
    return options


def _run(names: Sequence[str], *, quick: bool) -> tuple[list[Row], list[str]]:
    # A short name, because the path of a unix socket has at most 107 bytes.
    directory = Path(tempfile.mkdtemp(prefix="bench-", dir="/tmp"))
    rig = Rig(directory, quick)
    neighbours = machine.Neighbours()
    rows: list[Row] = []
    try:
        for name in names:
            sys.stderr.write(f"{name} ...\n")
            rows += FIGURES[name](rig)
    finally:
        rig.close()
        shutil.rmtree(directory)
    return rows, [f"other processes of the machine used {neighbours.share():.2f} cores meanwhile", *rig.notes]


def _results(rows: Sequence[Row], notes: Sequence[str], reasons: dict[str, str]) -> str:
    missed = [row.figure for row in rows if "MISSED" in row.result]
    verdict = f"Missed: {', '.join(missed)}." if missed else "No target was missed."
    head = f"{machine.today()}, {machine.described()}. {verdict}"
    return "\n".join(["", head, "", table.markdown(rows, reasons), "", *(f"- {note}" for note in notes), ""])


if __name__ == "__main__":
    sys.exit(main())
