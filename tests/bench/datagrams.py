"""StatsD packets: delivery under a flood, loss at a fixed rate, and the latency of health under a flood.

All packets differ: the sidecar counts equal ones without parsing them, and a table of those would flatter it. Equal
packets stand in the notes.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final, Self

from bench import health, machine
from bench.receivers import RECEIVERS, WARM_UP_S, Received
from bench.rig import NEVER, Rig, alternate, medians
from bench.table import Row, Target, at_least_of_baseline, at_most, number, percentile, spread
from harness.ports import free_port
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.sidecar import Sidecar

RATE: Final = 50_000
SHARE: Final = 0.5
TIMES_IDLE: Final = 3
DIFFERENT: Final = "different"
EQUAL: Final = "equal"


class Flood:
    """A sender on the clients' core while the context lasts; ``how``: a count and a rate for a limited one."""

    def __init__(self, address: str, *how: int, variety: str = DIFFERENT) -> None:
        command = [sys.executable, str(Path(__file__).with_name("flood.py")), address, variety, *map(str, how)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> int:
        """Stop the sender; the number of packets that were sent."""
        try:
            said = self._process.communicate(timeout=30)[0]  # closes its standard input
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            raise
        return int(said or 0)


@dataclass(frozen=True)
class Input:
    """One listener: its name in the table, its setting, and a function for an address."""

    name: str
    setting: str
    address: Callable[[Rig], str]


INPUTS: Final = (
    Input("UDP", "statsd_listen", lambda _rig: f"127.0.0.1:{free_port()}"),
    Input("unix socket", "statsd_socket", lambda rig: str(rig.directory / "statsd.sock")),
)


def measure(rig: Rig) -> list[Row]:
    """Delivery through each input, loss over UDP, and health under a flood."""
    for source in INPUTS:
        _delivered(rig, source, EQUAL)
    delivered = [_delivered(rig, source, DIFFERENT) for source in INPUTS]
    return [*delivered, _lost(rig), *_health(rig)]


# -- delivery under a flood ---------------------------------------------------------------------------------


def _delivered(rig: Rig, source: Input, variety: str) -> Row:
    seconds = 0.5 if rig.quick else 1.5
    ours = partial(_ours, rig, source, variety, seconds)
    receivers = RECEIVERS if variety == DIFFERENT else list(RECEIVERS)[:1]
    theirs = (partial(_baseline, rig, source, variety, receiver, seconds) for receiver in receivers)
    columns = list(zip(*alternate(rig.rounds, ours, *theirs), strict=True))
    for name, column in zip(("sidecar", *receivers), columns, strict=True):
        cpu_us = median(each.cpu_us for each in column)
        rig.notes.append(
            f"{source.name}, {variety} packets, {name}: {spread([each.rate for each in column])} packets/s, "
            f"{number(cpu_us)} us CPU a packet"
        )
    our_rate, their_rate, *_ = (median(each.rate for each in column) for column in columns)
    figure = f"packets a second that all differ, {source.name}"
    return Row(figure, "/s", our_rate, their_rate, at_least_of_baseline(SHARE))


def _ours(rig: Rig, source: Input, variety: str, seconds: float) -> Received:
    """A new daemon, whose window has the number of received errors."""
    address = source.address(rig)
    sidecar = _start(rig, **{source.setting: address})
    with Flood(address, variety=variety), machine.with_priority():  # or this process would wait for the sender
        wait_for(lambda: _errors(sidecar), timeout_s=10, what="the flood has begun")
        time.sleep(WARM_UP_S)
        before, begun, cpu_ns = _errors(sidecar), time.perf_counter(), machine.cpu_ns(sidecar.pid)
        time.sleep(seconds)
        packets, took = _errors(sidecar) - before, time.perf_counter() - begun
        cpu_s = (machine.cpu_ns(sidecar.pid) - cpu_ns) / machine.NS_PER_S
    sidecar.stop()
    return Received(packets, took, cpu_s)


def _baseline(rig: Rig, source: Input, variety: str, receiver: str, seconds: float) -> Received:
    address = source.address(rig)
    with Flood(address, variety=variety):
        return Received(*rig.worker("receivers", receiver, address, str(seconds)))


def _start(rig: Rig, **settings: str) -> Sidecar:
    return rig.start(rig.sidecar("datagrams", error_limit=NEVER, **settings))


def _errors(sidecar: Sidecar) -> int:
    errors: int = sidecar.request("local", "GET", "/verdict").json()["evidence"]["errors"]
    return errors


# -- loss below it ------------------------------------------------------------------------------------------


def _lost(rig: Rig) -> Row:
    seconds = 1 if rig.quick else 5
    lost = []
    for _ in range(rig.rounds):
        address = INPUTS[0].address(rig)
        sidecar = _start(rig, statsd_listen=address)
        with Flood(address, seconds * RATE, RATE) as flood:
            sent = flood.stop()
        lost.append(sent - _settled(sidecar))
        sidecar.stop()
    return Row(
        f"packets lost, UDP, {seconds} s of {RATE:,} a second", "packets", max(lost), target=at_most(0, "packets")
    )


def _settled(sidecar: Sidecar) -> int:
    """The errors in the window once their number is stable."""
    seen = [-1, _errors(sidecar)]
    while seen[-1] != seen[-2] and len(seen) < 100:
        time.sleep(0.1)
        seen.append(_errors(sidecar))
    return seen[-1]


# -- health under a flood -----------------------------------------------------------------------------------


def _health(rig: Rig) -> list[Row]:
    addresses = {source.setting: source.address(rig) for source in INPUTS}
    sidecar = _start(rig, **addresses)
    rounds = list(
        alternate(rig.rounds, *(partial(_p99, rig, sidecar, flooded) for flooded in ("", *addresses.values())))
    )
    sidecar.stop()
    idle, *flooded = medians(rounds)
    rig.notes.append(f"health p99 of the sidecar that is then flooded by packets: {number(idle)} ms while it is idle")
    limit = TIMES_IDLE * idle
    target = Target(f"<= {TIMES_IDLE} x idle ({number(limit)} ms)", lambda row: row.ours <= limit)
    return [
        Row(f"health p99, flooded by packets, {source.name}", "ms", p99, target=target)
        for source, p99 in zip(INPUTS, flooded, strict=True)
    ]


def _p99(rig: Rig, sidecar: Sidecar, flooded: str) -> float:
    """Milliseconds, while packets are sent to the address ``flooded``, if it is set."""
    count = health.POLLS // (10 if rig.quick else 1)
    if not flooded:
        return _polled(sidecar, count)
    with Flood(flooded) as flood:
        time.sleep(WARM_UP_S)
        p99 = _polled(sidecar, count)
        if not flood.stop():
            raise RuntimeError(f"nothing could be sent to {flooded}")
    return p99


def _polled(sidecar: Sidecar, count: int) -> float:
    return percentile(health.polls(sidecar.address("public"), count, health.MOST_S), 99)
