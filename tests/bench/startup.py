"""Time from exec to the first answers, and memory, beside a process with the same four libraries."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final

from bench import machine, wire
from bench.rig import NEVER, Baseline, Rig, alternate, medians
from bench.table import Row, Target, at_most, at_most_of_baseline, spread
from harness.sidecar import Sidecar
from harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.redis_server import RedisServer

REQUESTS: Final = 4_000
ONE_CORE_MS: Final = 120
ALL_CORES_MS: Final = 100
SHARE: Final = 0.8
RSS_MIB: Final = 38  # redis-py alone is 6.7
SCRAPING_MIB: Final = 40
SCRAPES: Final = 5
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
    baseline = rig.baseline("four", url)
    servers = ours, plain = Server(rig.sidecar("start", error_limit=NEVER, redis_url=url)), Server(baseline)
    for server in servers:
        _start_up_ms(server, rig.server_cores)  # not measured: this start writes the bytecode
    rows = [
        *_start_rows(rig, "one core", rig.server_cores, servers, at_most(ONE_CORE_MS, "ms")),
        *_start_rows(rig, f"{len(rig.all_cores)} cores", rig.all_cores, servers, at_most(ALL_CORES_MS, "ms")),
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
    mib = [_scraping_mib(rig, baseline) for _ in range(rig.rounds)]
    rig.notes.append(f"RSS while scraping: sidecar {spread(mib)} MiB")
    rows.append(Row("RSS while scraping a page each second", "MiB", median(mib), None, at_most(SCRAPING_MIB, "MiB")))
    return rows


def _start_rows(rig: Rig, where: str, cores: set[int], servers: tuple[Server, Server], target: Target) -> Iterator[Row]:
    rounds = list(alternate(rig.rounds + 2, *(partial(_start_up_ms, server, cores) for server in servers)))
    our_ms, plain_ms = zip(*rounds, strict=True)
    for place, (figure, goal) in enumerate(
        (("start-up", target), ("start-up to the first check", at_most_of_baseline(SHARE)))
    ):
        mine, theirs = [each[place] for each in our_ms], [each[place] for each in plain_ms]
        rig.notes.append(f"{figure}, {where}: sidecar {spread(mine)} ms, plain {spread(theirs)} ms")
        yield Row(f"{figure}, {where}", "ms", median(mine), median(theirs), goal)


def _start_up_ms(server: Server, cores: set[int]) -> tuple[float, float]:
    """Milliseconds from exec to the first 200 on /health, and on /livez; the process is stopped again.

    The sidecar answers /livez with 200 after its first check, when all listeners are open. The other has only /health.
    """
    with machine.on_cores(cores):
        begun = time.perf_counter()
        server.child.launch()
    _await_health(server)
    up_ms = ready_ms = (time.perf_counter() - begun) * 1000
    if isinstance(server.child, Sidecar):
        _await_health(server, "/livez")
        ready_ms = (time.perf_counter() - begun) * 1000
    server.child.stop()
    return up_ms, ready_ms


def _await_health(server: Server, path: str = "/health") -> None:
    request = wire.request("GET", path, close=True)
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


def _scraping_mib(rig: Rig, scraped: Baseline) -> float:
    """RSS of a sidecar with Redis after it has scraped the page of the other server."""
    ours = rig.sidecar(
        "scraping",
        error_limit=NEVER,
        redis_url=rig.redis.url,
        scrape_url=f"http://127.0.0.1:{scraped.port}/metrics",
        scrape_errors="errors_total",
        scrape_interval="1s",
    )
    for child in (scraped, ours):
        rig.start(child)
    wait_for(
        lambda: ours.metrics()['arbiter_scrapes_total{outcome="ok"}'] >= SCRAPES, timeout_s=60, what="it has scraped"
    )
    mib = machine.rss_mib(ours.pid)
    for child in (scraped, ours):
        child.stop()
    return mib


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
