"""``python -m simulation [--hours H] [--seed S] [SCENARIO...]``: play, and print the tables."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from simulation.report import table
from simulation.scenarios import SCENARIOS, Scenario, day, play


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the named scenarios, or the day, in all its ways to run the fleet."""
    options = _options(arguments)
    known = {scenario.name: scenario for scenario in [day(options.hours), *SCENARIOS]}
    for name in options.scenarios or ["day"]:
        _show(known[name], options.seed)
    return 0


def _show(scenario: Scenario, seed: int) -> None:
    begun = time.monotonic()
    outcomes = [play(scenario, each, seed=seed) for each in scenario.ways]
    sys.stdout.write(table(scenario, outcomes) + "\n\n")
    sys.stdout.flush()
    sys.stderr.write(f"{scenario.name}: seed {seed}, took {time.monotonic() - begun:.0f} s\n")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    names = ["day", *(scenario.name for scenario in SCENARIOS)]
    parser = argparse.ArgumentParser("python -m simulation", description="A fleet of 200 in virtual time.")
    parser.add_argument("scenarios", nargs="*", choices=[[], *names], metavar="SCENARIO", help=", ".join(names))
    parser.add_argument("--hours", type=float, default=24, help="length of the day, 6 to 24")
    parser.add_argument("--seed", type=int, default=1, help="another day of the same kind")
    options = parser.parse_args(arguments)
    if not 6 <= options.hours <= 24:
        parser.error("a day has 6 to 24 hours")
    return options


if __name__ == "__main__":
    sys.exit(main())
