"""The latency of health polls, each on a new connection: idle, under load, and under a flood of pings.

The poller shares its core with the load generator and has priority (SCHED_FIFO), so that it measures the server and not
the queue for the core.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from bench import machine, wire
from bench.rig import NEVER, Rig, alternate
from bench.table import Row, Target, at_most, number, percentile, spread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.load import Tally

EVERY_S: Final = 0.002
WARM_UP: Final = 10
POLLS: Final = 2_000
MOST_S: Final = 8.0
RATE: Final = 5_000
IDLE: Final = "health p99, idle"
TIMES_IDLE: Final = 2
SATURATED_MS: Final = 5
FLOODED_MS: Final = {50: 25, 99: 50}
POLLED_MS: Final = 25


@dataclass(frozen=True)
class Server:
    """The addresses of a server for pings and for health, and its status for a ping."""

    pings: wire.Address
    health: wire.Address
    status: int


@dataclass(frozen=True)
class Condition:
    """The load during the polls; none if ``how`` is None."""

    figure: str
    how: Mapping[str, Any] | None = None
    most_s: float = MOST_S
    is_of_polls: bool = False
    """Whether the load is of health polls on kept connections, not of pings."""


CONDITIONS: Final = (
    Condition(IDLE),
    Condition(f"health p99, {RATE:,} pings/s", {"rate": RATE}),
    Condition("health p99, saturated by 32 connections", {"connections": 32}),
    Condition("health p99, flooded by 256 kept connections of pollers", {"connections": 256}, 4, is_of_polls=True),
    Condition("health p99, flooded by 256 connections", {"connections": 256}, most_s=4),
)
FLOODED: Final = CONDITIONS[-1]


@dataclass(frozen=True)
class Round:
    """Milliseconds of the polls of one round, and the tally of the load."""

    polls_ms: list[float]
    tally: Tally | None = None

    @property
    def p50(self) -> float:
        return percentile(self.polls_ms, 50)

    @property
    def p99(self) -> float:
        return percentile(self.polls_ms, 99)


def measure(rig: Rig) -> list[Row]:
    """A row per condition; the baseline is the bare server under the same load."""
    sidecar = rig.start(rig.sidecar("health", error_limit=NEVER))
    bare = rig.start(rig.baseline("bare"))
    ours = Server(sidecar.address("local"), sidecar.address("public"), 202)
    theirs = Server(bare.address, bare.address, 204)
    _note_priority(rig)
    rows: list[Row] = []
    for condition in CONDITIONS:
        measures = (partial(_round, rig, server, condition) for server in (ours, theirs))
        our_rounds, their_rounds = zip(*alternate(rig.rounds, *measures), strict=True)
        rig.notes.append(f"{condition.figure}: sidecar {_summary(our_rounds)}; bare {_summary(their_rounds)}")
        our_ms, their_ms = (median(each.p99 for each in rounds) for rounds in (our_rounds, their_rounds))
        rows.append(Row(condition.figure, "ms", our_ms, their_ms, _target(condition, rows)))
        if condition is FLOODED:
            our_ms, their_ms = (median(each.p50 for each in rounds) for rounds in (our_rounds, their_rounds))
            rows.append(
                Row(FLOODED.figure.replace("p99", "p50"), "ms", our_ms, their_ms, at_most(FLOODED_MS[50], "ms"))
            )
    sidecar.stop()
    bare.stop()
    return rows


def _note_priority(rig: Rig) -> None:
    with machine.with_priority() as allowed:
        has = "had" if allowed else "had NOT (it takes root)"
    rig.notes.append(f"the health poller {has} precedence over the load generator, with which it shares a core")


def _summary(rounds: Sequence[Round]) -> str:
    """Percentiles, and the part of the load that failed."""
    p50 = median(each.p50 for each in rounds)
    text = f"{spread([each.p99 for each in rounds])} ms, p50 {number(p50)} ms"
    tallies = [each.tally for each in rounds if each.tally]
    answers, cut, unsent = (sum(getattr(tally, what) for tally in tallies) for what in ("answers", "cut", "unsent"))
    if cut or unsent:
        text += f", {number(answers)} pings answered, {number(cut)} connections cut, {number(unsent)} pings not sent"
    return text


def _target(condition: Condition, rows: list[Row]) -> Target | None:
    if condition is CONDITIONS[1]:
        limit = TIMES_IDLE * rows[0].ours
        return Target(f"<= {TIMES_IDLE} x idle ({number(limit)} ms)", lambda row: row.ours <= limit)
    limit_ms = POLLED_MS if condition.is_of_polls else FLOODED_MS[99] if condition is FLOODED else SATURATED_MS
    return at_most(limit_ms, "ms") if condition.how else None


def _round(rig: Rig, server: Server, condition: Condition) -> Round:
    count = POLLS // 10 if rig.quick else POLLS
    if condition.how is None:
        return Round(polls(server.health, count, condition.most_s))
    load_of = (server.pings, wire.request("POST", "/errors"), server.status)
    if condition.is_of_polls:
        load_of = (server.health, wire.request("GET", "/health"), 200)
    with rig.load(*load_of, seconds=60, **condition.how) as load:
        taken = polls(server.health, count, condition.most_s)
        tally = load.stop()
    if tally.wrong or not tally.answers:
        raise RuntimeError(f"{condition.figure}: not every ping was taken: {tally}")
    return Round(taken, tally)


def polls(address: wire.Address, count: int, most_s: float) -> list[float]:
    """Milliseconds of ``count`` polls, each on a new connection, one each ``EVERY_S`` or as soon as one is answered."""
    request = wire.request("GET", "/health", close=True)
    taken: list[float] = []
    with machine.with_priority():
        ends_at = time.monotonic() + most_s
        due = time.monotonic()
        while len(taken) < count + WARM_UP and due < ends_at:
            begun = time.perf_counter_ns()
            with wire.connect(address) as connection:
                wire.expect(200, connection, request)
            taken.append((time.perf_counter_ns() - begun) / 1e6)
            due = max(due + EVERY_S, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))
    return taken[WARM_UP:]
