"""``python -m bench [--beside CHECKOUT] [--quick] [NAME...]``: measure, and print the table."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from bench import door, machine, process, reports, scrape, table
from bench.rig import Rig, Tree

FIGURES: Final[dict[str, Callable[[Rig], Iterable[table.Row]]]] = {
    "memory": process.memory,
    "idle": process.idle,
    "start": process.start,
    "commands": process.commands,
    "standby": process.standby,
    "pings": reports.pings,
    "cull": reports.culls,
    "datagrams": reports.datagrams,
    "health": door.health,
    "flood": door.floods,
    "own-flood": door.own_flood,
    "scrape": scrape.measure,
}
HERE: Final = Path(__file__).parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the named figures, or all; 1 when a limit was missed."""
    options = _options(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the children are stopped
    trees = [Tree("before", options.beside.resolve())] if options.beside else []
    # A short name, because the path of a unix socket has at most 107 bytes.
    directory = Path(tempfile.mkdtemp(prefix="bench-", dir="/tmp"))
    rig = Rig(directory, [*trees, Tree("now", HERE)], is_quick=options.quick)
    neighbours = machine.Neighbours()
    columns = [tree.name for tree in rig.trees]
    sys.stdout.write(f"{machine.described(HERE)}\n\n{table.head(columns)}\n")
    is_missed = False
    try:
        for name in options.names or FIGURES:
            for row in FIGURES[name](rig):
                is_missed |= row.is_met is False
                sys.stdout.write(f"{row.markdown(columns)}\n")
                sys.stdout.flush()
    finally:
        rig.close()
        shutil.rmtree(directory)
    sys.stdout.write(f"\nOther processes of the machine used {neighbours.share():.2f} cores meanwhile.\n")
    return int(is_missed)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("tests/bench/run", description="Measure the sidecar.")
    parser.add_argument("names", nargs="*", choices=[[], *FIGURES], metavar="NAME", help=", ".join(FIGURES))
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT", help="measure this checkout as well, in turn")
    parser.add_argument("--quick", action="store_true", help="few and short rounds, for development")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
