"""``python -m simulation [SCENARIO...] [--policy ...] [--seed N]``: run scenarios, and print the table."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from simulation.report import head, lines
from simulation.rules import POLICIES
from simulation.scenarios import SCENARIOS, play


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the named scenarios, or all, under each of the policies."""
    options = _options(arguments)
    policies = [one for one in POLICIES if one.name in options.policy or not options.policy]
    scenarios = [one for one in SCENARIOS if one.name in options.scenarios or not options.scenarios]
    given = list(sys.argv[1:] if arguments is None else arguments)
    said = " ".join(["python -m simulation", *(f'"{word}"' if " " in word else word for word in given)])
    _say(f"`{said}`, {datetime.now(UTC):%Y-%m-%d}, seed {options.seed}\n\n{head(policies)}\n")
    for scenario in scenarios:
        begun = time.process_time()
        outcomes = [play(scenario, each, seed=options.seed) for each in policies]
        _say(f"{lines(scenario, outcomes)}\n")
        sys.stderr.write(f"{scenario.name}: {time.process_time() - begun:.0f} s of a core\n")
    return 0


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m simulation", description="Fleets in virtual time, by the real code.")
    names = [one.name for one in SCENARIOS]
    parser.add_argument("scenarios", nargs="*", choices=[[], *names], metavar="SCENARIO", help=", ".join(names))
    policies = [one.name for one in POLICIES]
    parser.add_argument("--policy", action="append", default=[], choices=policies, help="a column, several times")
    parser.add_argument("--seed", type=int, default=1, help="another day of the same kind")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
