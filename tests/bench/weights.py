"""The effect of an incident on users, through HAProxy with the shipped cascade: with weights, culls, or both.

One of four apps fails half of its requests and another one all of them, until they are replaced. The budget is one cull
in ten seconds, in proportion to an incident of half a minute.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.table import Row, at_most
from harness.binaries import find
from harness.cascade import NAMES, CascadeSite, weights
from harness.children import Children
from harness.traffic import Outcome, failed, lost

if TYPE_CHECKING:
    from bench.rig import Rig
    from harness.sidecar import Setting

RATE: Final = 200
WELL_S: Final = 3
INCIDENT_S: Final = 30
HISTORY_S: Final = 35
"""The time that fills the six buckets of the success rate with good results."""

TOLD_S: Final = 60
STEP_S: Final = 0.1
FAILING: Final = (0.0, 0.5, 1.0, 0.0)
JUDGING: Final[dict[str, Setting]] = {
    "error_ratio": 0.3,
    "settle": "1s",
    "drain": "2s",
    "check_interval": "2s",
    "budget": "1",
    "budget_window": "10s",
}
WAYS: Final[dict[str, dict[str, Setting]]] = {
    "neither": {"weight": "off", "mode": "shadow"},
    "weights": {"weight": "on", "error_limit": 1_000_000, "error_ratio": 0},
    "culls": {"weight": "off", "mode": "enforce"},
    "weights and culls": {"weight": "on", "mode": "enforce"},
}


@dataclass(frozen=True)
class Incident:
    """The answers during the incident, and the replaced apps with the seconds since its beginning."""

    outcomes: Counter[Outcome]
    replaced: list[tuple[str, float]]

    def failed_percent(self, method: str) -> float:
        return 100 * failed(self.outcomes, method)


def measure(rig: Rig) -> list[Row]:
    """The four ways one after the other, then the times in which a weight falls and rises."""
    if not find("haproxy"):
        rig.notes.append("haproxy is not installed: weights were not measured")
        return []
    seen = {way: _incident(rig, way) for way in WAYS}
    rows = [*_rows(seen, "POST"), *_rows(seen, "GET"), *_lost(seen), *_speed(rig)]
    for way, incident in seen.items():
        who = ", ".join(f"{name} after {at_s:.0f} s" for name, at_s in incident.replaced) or "none"
        rig.notes.append(f"an incident with {way}: {incident.outcomes.total()} requests, replaced: {who}")
    return rows


def _rows(seen: dict[str, Incident], method: str) -> list[Row]:
    percent = {way: incident.failed_percent(method) for way, incident in seen.items()}
    retried = "not retried" if method == "POST" else "retried"
    rows = [
        Row(f"{method}s that fail, {retried}: {way}, beside neither", "%", percent[way], percent["neither"])
        for way in WAYS
        if way != "neither"
    ]
    both, culls = percent["weights and culls"], percent["culls"]
    return [*rows, Row(f"{method}s that fail, {retried}: weights and culls, beside culls alone", "%", both, culls)]


def _lost(seen: dict[str, Incident]) -> list[Row]:
    count = sum(sum(lost(incident.outcomes).values()) for incident in seen.values())
    return [
        Row("requests that no app answers, all incidents together", "requests", count, None, at_most(0, "requests"))
    ]


def _incident(rig: Rig, way: str) -> Incident:
    redis = {"redis_url": rig.redis.url, "service": way.replace(" ", "-")}
    with _open(rig, {**JUDGING, **redis, **WAYS[way]}) as site:
        site.traffic.next_answers(WELL_S * RATE)
        before = site.traffic.seen()
        site.fail(*FAILING)
        replaced = _schedule(site, 12 if rig.quick else INCIDENT_S)
        return Incident(site.traffic.seen() - before, replaced)


def _schedule(site: CascadeSite, seconds: float) -> list[tuple[str, float]]:
    """Replace every container that is down, for this long; the replaced ones and the times."""
    replaced = []
    begun = time.monotonic()
    while (at_s := time.monotonic() - begun) < seconds:
        for name in NAMES:
            if site.sidecars[name].health("/health/nomad")[0] != 200:
                site.replace(name)
                replaced.append((name, at_s))
        time.sleep(STEP_S)
    return replaced


def _speed(rig: Rig) -> list[Row]:
    history_s = 5 if rig.quick else HISTORY_S
    with _open(rig, {"error_ratio": 0}) as site:
        site.traffic.next_answers(history_s * RATE)
        site.fail(0, 0.5, 0, 0)
        fall_s = _until(site, lambda percent: percent <= 14)
        site.fail(0, 0, 0, 0)
        rise_s = _until(site, lambda percent: percent >= 90)
    return [
        Row(
            f"half of an app's requests fail, after {history_s} s of health, until it is sent an eighth",
            "s",
            fall_s,
            None,
            at_most(10, "s"),
        ),
        Row("it heals, until its weight is back at 90 %", "s", rise_s),
    ]


@contextmanager
def _open(rig: Rig, settings: dict[str, Setting]) -> Iterator[CascadeSite]:
    """A site under load; everything but the users runs on the servers' core."""
    children = Children()
    try:
        with rig.on_server_cores():
            directory = Path(tempfile.mkdtemp(dir=rig.directory))
            site = CascadeSite(directory, children, settings).open(RATE)
        with site.traffic:
            yield site
    finally:
        children.stop()


def _until(site: CascadeSite, is_there: Callable[[int], bool]) -> float:
    """Seconds until the predicate holds for HAProxy's weight of app2; infinite after a minute."""
    begun = time.monotonic()
    while time.monotonic() - begun < TOLD_S:
        if is_there(weights(site.proxy)["app2"]):
            return time.monotonic() - begun
        time.sleep(STEP_S)
    return float("inf")
