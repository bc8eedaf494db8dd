"""StatsD packets: how many a second arrive under a flood, how many are lost below it, and what it does to health."""

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
SHARE: Final = 0.7
TIMES_IDLE: Final = 3


class Flood:
    """A sender on the clients' core, until the context is left; ``how`` is a count and a rate for one that ends."""

    def __init__(self, address: str, *how: int) -> None:
        command = [sys.executable, str(Path(__file__).with_name("flood.py")), address, *map(str, how)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> int:
        """How many packets were sent by then."""
        try:
            said = self._process.communicate(timeout=30)[0]  # it closes their standard input
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            raise
        return int(said or 0)


@dataclass(frozen=True)
class Door:
    """One way in: its word in the table, and what makes an address for it."""

    name: str
    setting: str
    address: Callable[[Rig], str]


DOORS: Final = (
    Door("UDP", "statsd_listen", lambda _rig: f"127.0.0.1:{free_port()}"),
    Door("unix socket", "statsd_socket", lambda rig: str(rig.directory / "statsd.sock")),
)


def measure(rig: Rig) -> list[Row]:
    """Delivery through each door, loss through the one that can lose, and health under a flood."""
    delivered = [_delivered(rig, door) for door in DOORS]
    return [*delivered, _lost(rig), *_health(rig)]


# -- delivery under a flood ---------------------------------------------------------------------------------


def _delivered(rig: Rig, door: Door) -> Row:
    seconds = 0.5 if rig.quick else 1.5
    ours = partial(_ours, rig, door, seconds)
    theirs = (partial(_baseline, rig, door, receiver, seconds) for receiver in RECEIVERS)
    columns = list(zip(*alternate(rig.rounds, ours, *theirs), strict=True))
    for name, column in zip(("sidecar", *RECEIVERS), columns, strict=True):
        cpu_us = median(each.cpu_us for each in column)
        rig.notes.append(
            f"{door.name}, {name}: {spread([each.rate for each in column])} packets/s, {number(cpu_us)} us CPU a packet"
        )
    our_rate, their_rate, _ = (median(each.rate for each in column) for column in columns)
    return Row(f"packets a second, {door.name}", "/s", our_rate, their_rate, at_least_of_baseline(SHARE))


def _ours(rig: Rig, door: Door, seconds: float) -> Received:
    """The daemon, whose window tells how many errors have come to it; a fresh one, since the window forgets."""
    address = door.address(rig)
    sidecar = _start(rig, **{door.setting: address})
    with Flood(address), machine.first_in_line():  # else we would queue behind the sender for our core
        wait_for(lambda: _errors(sidecar), timeout_s=10, what="the flood has begun")
        time.sleep(WARM_UP_S)
        before, begun, cpu_ns = _errors(sidecar), time.perf_counter(), machine.cpu_ns(sidecar.pid)
        time.sleep(seconds)
        packets, took = _errors(sidecar) - before, time.perf_counter() - begun
        cpu_s = (machine.cpu_ns(sidecar.pid) - cpu_ns) / machine.NS_PER_S
    sidecar.stop()
    return Received(packets, took, cpu_s)


def _baseline(rig: Rig, door: Door, receiver: str, seconds: float) -> Received:
    address = door.address(rig)
    with Flood(address):
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
        address = DOORS[0].address(rig)
        sidecar = _start(rig, statsd_listen=address)
        with Flood(address, seconds * RATE, RATE) as flood:
            sent = flood.stop()
        lost.append(sent - _settled(sidecar))
        sidecar.stop()
    return Row(
        f"packets lost, UDP, {seconds} s of {RATE:,} a second", "packets", max(lost), target=at_most(0, "packets")
    )


def _settled(sidecar: Sidecar) -> int:
    """Errors in the window once no more come."""
    seen = [-1, _errors(sidecar)]
    while seen[-1] != seen[-2] and len(seen) < 100:
        time.sleep(0.1)
        seen.append(_errors(sidecar))
    return seen[-1]


# -- health under a flood -----------------------------------------------------------------------------------


def _health(rig: Rig) -> list[Row]:
    addresses = {door.setting: door.address(rig) for door in DOORS}
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
        Row(f"health p99, flooded by packets, {door.name}", "ms", p99, target=target)
        for door, p99 in zip(DOORS, flooded, strict=True)
    ]


def _p99(rig: Rig, sidecar: Sidecar, flooded: str) -> float:
    """Milliseconds; while packets are sent to the address, if there is one."""
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
