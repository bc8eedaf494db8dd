"""Time from exec to the first 200, and memory, beside a process with the same four libraries."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from bench import machine, wire
from bench.rig import NEVER, Baseline, Rig, alternate, medians
from bench.table import Row, at_most, at_most_of_baseline, spread
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.redis_server import RedisServer
    from harness.sidecar import Sidecar

REQUESTS: Final = 4_000
SHARE: Final = 0.8
RSS_MIB: Final = 45
_POLL_S: Final = 0.0005
_CALM_S: Final = 0.5
_BEFORE_WORK: Final = frozenset({"NULL", "auth", "hello", "select", "client|setinfo", "client|list"})


@dataclass(frozen=True)
class Server:
    """A process, and its addresses for health and pings."""

    child: Sidecar | Baseline

    @property
    def health(self) -> wire.Address:
        return self.child.address if isinstance(self.child, Baseline) else self.child.address("public")

    @property
    def pings(self) -> wire.Address:
        return self.child.address if isinstance(self.child, Baseline) else self.child.address("local")


def measure(rig: Rig) -> list[Row]:
    """Start-up on one core and on all, memory when ready and after some work."""
    url = rig.redis.url
    ours, plain = Server(rig.sidecar("start", error_limit=NEVER, redis_url=url)), Server(rig.baseline("four", url))
    for server in (ours, plain):
        _start_up_ms(server, rig.server_cores)  # not measured: this start writes the bytecode
    rows = [
        _start_row(rig, "start-up, one core", rig.server_cores, ours, plain),
        _start_row(rig, f"start-up, {len(rig.all_cores)} cores", rig.all_cores, ours, plain),
    ]
    rounds = list(alternate(rig.rounds, *(partial(_memory_mib, rig, server) for server in (ours, plain))))
    rig.notes.append(f"RSS when ready: sidecar {spread([mine[0] for mine, _ in rounds])} MiB")
    our_mib = medians([mine for mine, _ in rounds])
    plain_mib = medians([theirs for _, theirs in rounds])
    for place, (figure, target) in enumerate(
        (
            ("RSS, ready and Redis connected", at_most(RSS_MIB, "MiB")),
            ("PSS, ready and Redis connected", None),
            (f"RSS after {REQUESTS:,} requests and a scrape", at_most(RSS_MIB, "MiB")),
            (f"PSS after {REQUESTS:,} requests and a scrape", None),
        )
    ):
        rows.append(Row(figure, "MiB", our_mib[place], plain_mib[place], target))
    return rows


def _start_row(rig: Rig, figure: str, cores: set[int], ours: Server, plain: Server) -> Row:
    rounds = list(alternate(rig.rounds + 2, *(partial(_start_up_ms, server, cores) for server in (ours, plain))))
    our_ms, plain_ms = zip(*rounds, strict=True)
    rig.notes.append(f"{figure}: sidecar {spread(our_ms)} ms, plain {spread(plain_ms)} ms")
    our_median, plain_median = medians(rounds)
    return Row(figure, "ms", our_median, plain_median, at_most_of_baseline(SHARE))


def _start_up_ms(server: Server, cores: set[int]) -> float:
    """Milliseconds from exec to the first 200 on /health; the process is stopped again."""
    with machine.on_cores(cores):
        begun = time.perf_counter()
        server.child.launch()
    _await_health(server)
    took_ms = (time.perf_counter() - begun) * 1000
    server.child.stop()
    return took_ms


def _await_health(server: Server) -> None:
    request = wire.request("GET", "/health", close=True)
    ends_at = time.monotonic() + 20
    while server.child.alive and time.monotonic() < ends_at:
        try:
            if wire.status(wire.ask_once(server.health, request)) == 200:
                return
        except OSError:
            time.sleep(_POLL_S)
    raise RuntimeError(f"no health within 20 s\n{server.child.shown()}")


def _memory_mib(rig: Rig, server: Server) -> tuple[float, ...]:
    """RSS and PSS when ready, and both after work."""
    with rig.on_server_cores():
        server.child.launch()
    _await_health(server)
    wait_for(partial(_is_at_work, rig.redis), timeout_s=10, what="the server has sent a command to Redis")
    time.sleep(_CALM_S)
    pid = server.child.pid
    ready = machine.rss_mib(pid), machine.pss_mib(pid)
    _work(server)
    worked = machine.rss_mib(pid), machine.pss_mib(pid)
    server.child.stop()
    return *ready, *worked


def _is_at_work(redis: RedisServer) -> bool:
    """Whether another client has sent more than connection commands to Redis."""
    clients = str(redis.cli("CLIENT", "LIST")).splitlines()
    return any(word[4:] not in _BEFORE_WORK for line in clients for word in line.split() if word.startswith("cmd="))


def _work(server: Server) -> None:
    ping, poll = wire.request("POST", "/errors"), wire.request("GET", "/health")
    with wire.connect(server.pings) as pings, wire.connect(server.health) as health:
        for _ in range(REQUESTS // 2):
            wire.ask(pings, ping)
            wire.expect(200, health, poll)
        wire.expect(200, health, wire.request("GET", "/metrics"))
