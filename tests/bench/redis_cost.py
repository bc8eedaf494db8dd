"""The cost of a fleet for its Redis: processor time of beats and claims, latency of claims, memory.

The figures include the whole process of the server, with its connections and its idle work.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final

from bench import at_once, claim_latency, machine
from bench.crowd import PING, Crowd
from bench.fleet import BEAT_S, Service
from bench.rig import alternate
from bench.table import Row, Target, at_most, number, spread
from harness.redis_server import RedisServer
from sidecar.core.types import Denied, Granted, Presence

if TYPE_CHECKING:
    from bench.rig import Rig

SIDECARS: Final = 10_000
SERVICES: Final = 50
STORM: Final = 1_000
CULLED: Final = 10
CORE_PERCENT: Final = 5
BEAT_US: Final = 18
_SPARE_CLIENTS: Final = 200
_US_PER_S: Final = 1_000_000


def measure(rig: Rig) -> list[Row]:
    """Beats of ten thousand sidecars, a thousand suspects, single claims, concurrent claims, and memory."""
    with _server(rig) as server:
        small = [Service(server.url, f"small-{place}", SIDECARS // SERVICES) for place in range(SERVICES)]
        large = Service(server.url, "large", SIDECARS)
        rows = [*_beats(rig, server, small, large), *_storm(rig, server)]
        rows += claim_latency.measure(rig, server.url, small[:-1])
        rows += at_once.measure(rig, server.url)
        return rows + [_memory(rig, server, one) for one in (small[-1], large)]


@contextmanager
def _server(rig: Rig) -> Iterator[RedisServer]:
    server = RedisServer(rig.directory, "cost")
    try:
        with rig.on_server_cores():
            server.start("--maxclients", str(SIDECARS + _SPARE_CLIENTS))
        yield server
    finally:
        server.stop()


# -- beats and claims ------------------------------------------------------------------------------------------------


def _beats(rig: Rig, server: RedisServer, small: Sequence[Service], large: Service) -> list[Row]:
    each = [one.beats() for one in small]
    ways = {
        "PING": [PING],
        f"{SERVICES} services of {SIDECARS // SERVICES}": [beat for beats in zip(*each, strict=True) for beat in beats],
        f"one service of {SIDECARS:,}": large.beats(),
    }
    rate = SIDECARS / BEAT_S
    rig.notes.append(f"Redis without connections: {_idle_percent(server):.2f} % of a core")
    with Crowd(("127.0.0.1", server.port), SIDECARS) as crowd:
        for commands in ways.values():
            crowd.all_once(commands)
        _note_connections(rig, server, crowd)
        server.cli("CONFIG", "RESETSTAT")
        paced = _each_us(rig, server, ways, lambda commands: crowd.pace(commands, rate, _slice_s(rig)))
        raced = _each_us(rig, server, ways, lambda commands: crowd.race(commands, _slice_s(rig) / 2))
        beat_us, ping_us = _own_clock_us(server, "evalsha"), _own_clock_us(server, "ping")
    _note(rig, f"{SIDECARS:,} sidecars, {rate:,.0f} a second", paced)
    _note(rig, f"{SIDECARS:,} sidecars, as fast as they go", raced)
    return [
        *_share_rows(f"Redis CPU, {SIDECARS:,} sidecars that beat", paced, rate, at_most(CORE_PERCENT, "%")),
        *_share_rows(f"Redis CPU, {SIDECARS:,} sidecars that beat, each as if Redis were busy", raced, rate, None),
        Row("a beat, by Redis's own clock", "us", beat_us, ping_us, at_most(BEAT_US, "us")),
        *(Row(f"sidecars that fill a core of Redis, {way}", "", _filling(raced[way])) for way in list(ways)[1:]),
    ]


def _share_rows(figure: str, each_us: Mapping[str, Sequence[float]], rate: float, target: Target | None) -> list[Row]:
    """The target is for the whole cost, including that of a PING."""
    ping, *ours = [_percent(costs, rate) for costs in each_us.values()]
    ways = list(each_us)[1:]
    return [Row(f"{figure}, {way}", "% of a core", mine, ping, target) for way, mine in zip(ways, ours, strict=True)]


def _storm(rig: Rig, server: RedisServer) -> list[Row]:
    """All are suspect, and claim as often as they beat: one is culled, and the others are denied."""
    service = Service(server.url, "storm", STORM, trial=True)
    beats, reads = service.beats(Presence.SUSPECT), service.reads()
    both = "beats and denied claims"
    rate = 2 * STORM / BEAT_S
    with Crowd(("127.0.0.1", server.port), STORM) as crowd:
        crowd.all_once(beats)
        _begin_trial(service)
        crowd.all_once(reads)
        server.cli("CONFIG", "RESETSTAT")
        ways = {"PING": [PING], both: [*beats, *reads]}
        paced = _each_us(rig, server, ways, lambda commands: crowd.pace(commands, rate, _slice_s(rig)))
        ways = {"PING": [PING], "beat": beats, "denied claim": reads}
        raced = _each_us(rig, server, ways, lambda commands: crowd.race(commands, _slice_s(rig) / 2))
        seen = _own_clock_us(server, "evalsha")
    rig.notes.append(f"{both} while one is tried, by Redis's own clock: {number(seen)} us a call")
    _note(rig, f"{STORM:,} suspects while one is tried, {rate:,.0f} a second", paced)
    _note(rig, f"{STORM:,} suspects while one is tried, as fast as they go", raced)
    figure = f"Redis CPU, {STORM:,} suspects that beat and claim while one is tried"
    return [Row(figure, "% of a core", _percent(paced[both], rate), _percent(paced["PING"], rate))]


def _slice_s(rig: Rig) -> float:
    return 0.15 if rig.quick else 1.5


def _each_us(
    rig: Rig, server: RedisServer, ways: Mapping[str, list[bytes]], send: Callable[[list[bytes]], int]
) -> dict[str, list[float]]:
    """Processor time of the server per command, by round."""

    def cost(commands: list[bytes]) -> float:
        before_ns = machine.cpu_ns(server.pid)
        answered = send(commands)
        return (machine.cpu_ns(server.pid) - before_ns) / 1000 / answered

    rounds = alternate(rig.rounds, *(partial(cost, commands) for commands in ways.values()))
    return dict(zip(ways, map(list, zip(*rounds, strict=True)), strict=True))


def _percent(each_us: Sequence[float], rate: float) -> float:
    return 100 * median(each_us) * rate / _US_PER_S


def _filling(each_us: Sequence[float]) -> float:
    return _US_PER_S / median(each_us) * BEAT_S


def _begin_trial(service: Service) -> None:
    granted, denied = asyncio.run(service.answers([0, 1]))
    if not isinstance(granted, Granted) or not isinstance(denied, Denied) or denied.reason != "trial":
        raise RuntimeError(f"none is tried: {granted}, {denied}")


# -- notes and memory -----------------------------------------------------------------------------------------------


def _note(rig: Rig, how: str, each_us: Mapping[str, Sequence[float]]) -> None:
    texts = "; ".join(f"{way} {spread(costs)}" for way, costs in each_us.items())
    rig.notes.append(f"Redis CPU per command in us, {how}: {texts}")


def _own_clock_us(server: RedisServer, command: str) -> float:
    """The duration of a command by Redis's own measurement, without the connection."""
    return float(server.cli("INFO", "commandstats")[f"cmdstat_{command}"]["usec_per_call"])


def _idle_percent(server: RedisServer) -> float:
    before_ns, begun = machine.cpu_ns(server.pid), time.monotonic()
    time.sleep(0.5)
    return (machine.cpu_ns(server.pid) - before_ns) / (time.monotonic() - begun) / 1e7


def _note_connections(rig: Rig, server: RedisServer, crowd: Crowd) -> None:
    mib = server.cli("INFO", "memory")["mem_clients_normal"] / 2**20
    idle = _idle_percent(server)
    rig.notes.append(
        f"{crowd.connections:,} connections take {number(mib)} MiB of Redis just after a beat each, "
        f"and {idle:.2f} % of a core when nothing comes"
    )


def _memory(rig: Rig, server: RedisServer, service: Service) -> Row:
    """The memory of all keys, after ten culls and while half of the service is suspect."""
    culled = asyncio.run(service.answers(range(CULLED)))
    if not all(isinstance(answer, Granted) for answer in culled):
        raise RuntimeError(f"not all were culled: {culled}")
    with Crowd(("127.0.0.1", server.port), min(service.members, STORM)) as crowd:
        crowd.all_once(service.beats(Presence.SUSPECT, range(service.members // 2, service.members)))
    keys = server.cli("KEYS", f"{service.prefix}:*")
    used = sum(server.cli("MEMORY", "USAGE", key, "SAMPLES", 0) for key in keys)
    rig.notes.append(
        f"a service of {service.members:,}: {used / service.members:.0f} bytes a member in {len(keys)} keys"
    )
    return Row(f"memory in Redis of a service of {service.members:,}", "KiB", used / 1024)
