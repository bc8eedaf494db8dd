"""What a process costs that does little: memory, idle CPU, its start, commands, and the hand-over to a standby."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Final

from bench import machine, wire
from bench.rig import Rig, Tree
from bench.scrape import Pages
from bench.table import Row, at_most, not_worse, p99
from harness.main_and_standby import MainAndStandby
from harness.sidecar import Setting

CALM_S: Final = 3.0
IDLE_S: Final = 90.0
SCRAPING_S: Final = 8.0
HOUR_S: Final = 3600.0


def memory(rig: Rig) -> Iterator[Row]:
    """RSS with Redis, and while scraping a small page each second."""

    def rss(tree: Tree, calm_s: float, **settings: Setting) -> float:
        daemon = rig.start(tree, "memory", redis_url=rig.redis.url, **settings)
        time.sleep(calm_s)
        mib = machine.rss_mib(daemon.pid)
        daemon.stop()
        return mib

    yield Row("RSS with Redis", "MiB", rig.in_turn(lambda tree: rss(tree, CALM_S), 3), at_most(46))
    with Pages(100) as pages:
        scraping: dict[str, Setting] = {"scrape_url": pages.url, "scrape_errors": "errors_total"}
        samples = rig.in_turn(lambda tree: rss(tree, SCRAPING_S, **scraping, **tree.scraped_each(1)), 3)
    yield Row("RSS while scraping", "MiB", samples, at_most(49))


def idle(rig: Rig) -> Iterator[Row]:
    """CPU of daemons with Redis that nobody polls, at the same time."""
    daemons = {tree.name: rig.start(tree, "idle", redis_url=rig.redis.url, service=tree.name) for tree in rig.trees}
    time.sleep(CALM_S)
    before = {name: machine.cpu_s(daemon.pid) for name, daemon in daemons.items()}
    time.sleep(IDLE_S / 6 if rig.is_quick else IDLE_S)
    took_s = IDLE_S / 6 if rig.is_quick else IDLE_S
    used = {name: [(machine.cpu_s(daemon.pid) - before[name]) / took_s * HOUR_S] for name, daemon in daemons.items()}
    for daemon in daemons.values():
        daemon.stop()
    yield Row("idle CPU, nobody polls", "s an hour", used, at_most(1.0))


def start(rig: Rig) -> Iterator[Row]:
    """From exec to the first 200 at /livez, which comes when every listener is open."""

    def livez_ms(tree: Tree, cores: set[int]) -> float:
        daemon = rig.daemon(tree, "start", redis_url=rig.redis.url)
        with machine.on_cores(cores):
            begun = time.perf_counter()
            daemon.launch()
        taken_ms = (daemon.await_answer("/livez") - begun) * 1e3
        daemon.stop()
        return taken_ms

    for tree in rig.trees:
        livez_ms(tree, rig.server_core)  # not measured: it writes the bytecode
    for where, cores in (("one core", rig.server_core), ("all cores", rig.all_cores)):
        samples = rig.in_turn(partial(livez_ms, cores=cores), rig.rounds + 2)
        yield Row(f"/livez after exec, {where}", "ms", samples, not_worse())


def commands(rig: Rig) -> Iterator[Row]:
    """CPU of ``--help``, and of ``why`` and ``fleet``, which ask a daemon."""
    daemons = {tree.name: rig.start(tree, "commands", redis_url=rig.redis.url) for tree in rig.trees}

    def cpu_ms(tree: Tree, words: tuple[str, ...]) -> float:
        env = tree.env({**os.environ, **daemons[tree.name].environ()})
        before = machine.cpu_of_ended_children_s()
        command = [sys.executable, "-m", "sidecar", *words]
        subprocess.run(command, env=env, cwd=rig.directory, capture_output=True, check=True)
        return (machine.cpu_of_ended_children_s() - before) * 1e3

    time.sleep(1)  # the first beat
    for words, limit_ms in ((("--help",), 150), (("why",), 250), (("fleet",), 250)):
        for tree in rig.trees:
            cpu_ms(tree, words)  # not measured: it writes the bytecode
        yield Row(f"health-arbiter {words[0]}", "ms CPU", rig.in_turn(partial(cpu_ms, words=words)), at_most(limit_ms))
    for daemon in daemons.values():
        daemon.stop()


def standby(rig: Rig) -> Iterator[Row]:
    """From the kill of a main to the first answer of its standby, which must be 200."""
    gaps: dict[str, list[float]] = {}
    request = wire.request("GET", "/health", close=True)
    for tree in rig.trees:
        directory = rig.directory / f"lock-{tree.name}"
        directory.mkdir(mode=0o700)
        with machine.on_cores(rig.all_cores):
            pair = MainAndStandby(partial(rig.daemon, tree), directory).start()
            gaps[tree.name] = []
            for _ in range(5 if rig.is_quick else 30):
                time.sleep(0.4)
                os.kill(pair.main.pid, signal.SIGKILL)
                gaps[tree.name].append(_gap_ms(pair.main.address("public"), request))
                pair.main.wait()
                pair.main = pair.standby
                pair.await_standby()
        for daemon in (pair.main, pair.standby):
            daemon.stop()
    yield Row("gap after a kill with a standby, p99", "ms", gaps, at_most(50), of=p99)


def _gap_ms(address: wire.Address, request: bytes) -> float:
    begun = time.perf_counter()
    while time.perf_counter() - begun < wire.TIMEOUT_S:
        try:
            answer = wire.ask_once(address, request)
        except OSError:
            continue
        if wire.status(answer) != 200:
            raise RuntimeError(f"a wrong answer: {answer!r}")
        return (time.perf_counter() - begun) * 1e3
    raise RuntimeError("no answer")
