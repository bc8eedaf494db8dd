"""Makes the access log that ships as ``deploy/morning.jsonl.gz``: ``python tests/backtest/made_log.py``.

Two hours of eight containers, with errors when all is well, and four incidents. Nothing in it was taken from anywhere.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

SHIPPED: Final = Path(__file__).parents[2] / "deploy" / "morning.jsonl.gz"
BEGIN: Final = datetime(2026, 11, 20, 9, tzinfo=UTC)
FOR_S: Final = 2 * 3600
INSTANCES: Final = tuple(f"web-{number}" for number in range(1, 9))
STRAY: Final = 0.02
"""The part of the requests that fails in a healthy container."""


class Incident(NamedTuple):
    """From ``begin`` to ``end`` (minutes) the part ``failing`` of the requests to these containers fails."""

    begin: float
    end: float
    instances: tuple[str, ...]
    failing: float
    status: int


INCIDENTS: Final = (
    Incident(20, 46, ("web-3",), 0.6, 500),  # stuck, until an engineer restarted it
    Incident(60, 63, INSTANCES, 0.9, 503),  # the database was away
    Incident(80, 82, ("web-2", "web-5"), 0.5, 504),  # slow neighbours; it went away
    Incident(95, 115, ("web-7",), 0.4, 500),  # stuck again
)


def lines() -> Iterator[str]:
    """The log, line by line."""
    rng = Random("morning")
    for second in range(FOR_S):
        time = (BEGIN + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%SZ")
        for instance in INSTANCES:
            incident = _incident(second / 60, instance)
            for _ in range(rng.choice((1, 2, 2, 3))):
                status = 200
                if incident and rng.random() < incident.failing:
                    status = incident.status
                elif rng.random() < STRAY:
                    status = 502
                yield json.dumps({"time": time, "instance": instance, "status": status}) + "\n"


def _incident(minute: float, instance: str) -> Incident | None:
    found = (
        incident for incident in INCIDENTS if incident.begin <= minute < incident.end and instance in incident.instances
    )
    return next(found, None)


def main() -> None:
    """Write the file."""
    SHIPPED.parent.mkdir(exist_ok=True)
    with SHIPPED.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.writelines(map(str.encode, lines()))


if __name__ == "__main__":
    main()
