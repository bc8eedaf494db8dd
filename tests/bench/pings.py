"""Throughput on kept connections beside bare aiohttp handlers: ``POST /errors`` over both sockets, ``GET /health``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final

from bench import machine, wire
from bench.rig import NEVER, Rig, alternate
from bench.table import Row, Target, at_least_of_baseline, number, spread

if TYPE_CHECKING:
    from bench.load import Tally

JSON_BODY: Final = '{"kind":"redis"}'
TARGET: Final = at_least_of_baseline(0.97)
HEALTH_TARGET: Final = at_least_of_baseline(4)
_HEADROOM: Final = 1.3


@dataclass(frozen=True)
class Rate:
    """One round: answers a second, and the share of the time in which the server ran."""

    a_second: float
    busy: float

    @property
    def cpu_us(self) -> float:
        """The CPU time of the server per answer; other processes do not change it."""
        return self.busy / self.a_second * 1e6


def measure(rig: Rig) -> list[Row]:
    """Both bodies over both sockets; a note says whether the load generator was fast enough."""
    unix = {"ours": str(rig.directory / "s.sock"), "bare": str(rig.directory / "b.sock")}
    ours = rig.start(rig.sidecar("pings", error_limit=NEVER, socket=unix["ours"]))
    bare = rig.start(rig.baseline("bare", unix["bare"]))
    ping, json_ping = wire.request("POST", "/errors"), wire.request("POST", "/errors", JSON_BODY)
    rows = []
    for what, request in (("empty body", ping), ('`{"kind":"redis"}`', json_ping)):
        for where, our_address, bare_address in (
            ("TCP", ours.address("local"), bare.address),
            ("unix socket", unix["ours"], unix["bare"]),
        ):
            our_rate = partial(_rate, rig, ours.pid, our_address, request, 202)
            bare_rate = partial(_rate, rig, bare.pid, bare_address, request, 202)
            rounds = list(alternate(rig.rounds, our_rate, bare_rate))
            rows.append(_row(rig, f"pings a second, {what}, {where}", rounds, TARGET))
    poll = wire.request("GET", "/health")
    our_rate = partial(_rate, rig, ours.pid, ours.address("public"), poll, 200)
    bare_rate = partial(_rate, rig, bare.pid, bare.address, poll, 200)
    rows.append(_row(rig, "kept GET /health a second", list(alternate(rig.rounds, our_rate, bare_rate)), HEALTH_TARGET))
    ours.stop()
    bare.stop()
    _note_ceiling(rig, max(rate for row in rows for rate in (row.ours, row.baseline or 0)))
    return rows


def _row(rig: Rig, figure: str, rounds: list[tuple[Rate, ...]], target: Target) -> Row:
    ours, bare = zip(*rounds, strict=True)
    cpu_us = [median(rate.cpu_us for rate in rates) for rates in (ours, bare)]
    texts = [
        f"{name} {spread([rate.a_second for rate in rates])}, {number(each_us)} us CPU each, "
        f"busy {median(rate.busy for rate in rates):.0%}"
        for name, rates, each_us in zip(("sidecar", "bare"), (ours, bare), cpu_us, strict=True)
    ]
    rig.notes.append(f"{figure}: {'; '.join(texts)}; ratio by CPU time {number(cpu_us[1] / cpu_us[0])}")
    our_rate, bare_rate = (median(rate.a_second for rate in rates) for rates in (ours, bare))
    return Row(figure, "/s", our_rate, bare_rate, target)


def _rate(rig: Rig, pid: int, address: wire.Address, request: bytes, status: int) -> Rate:
    with rig.load(address, request, status, seconds=0.5 if rig.quick else 1.5) as loading:
        before = machine.cpu_ns(pid)
        tally = loading.tally()
        used_ns = machine.cpu_ns(pid) - before
    _check(tally)
    return Rate(tally.answers / tally.seconds, used_ns / machine.NS_PER_S / tally.seconds)


def _check(tally: Tally) -> None:
    if tally.wrong or tally.cut or not tally.answers:
        raise RuntimeError(f"not every ping was taken: {tally}")


def _note_ceiling(rig: Rig, fastest: float) -> None:
    trivial = rig.start(rig.baseline("trivial"))
    rates = [_rate(rig, trivial.pid, trivial.address, wire.request("POST", "/errors"), 204) for _ in range(rig.rounds)]
    trivial.stop()
    ceiling = median(rate.a_second for rate in rates)
    verdict = "enough" if ceiling >= _HEADROOM * fastest else "NOT ENOUGH to judge by"
    rig.notes.append(
        f"the load generator reaches {number(ceiling)}/s from a server that does not read (busy "
        f"{median(rate.busy for rate in rates):.0%}), {ceiling / fastest:.1f} times the fastest figure: {verdict}"
    )
