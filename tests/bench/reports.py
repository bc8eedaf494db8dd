"""What the app waits for: its reports by HTTP and by datagrams, and the time from its errors to the cull."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from functools import partial
from typing import Final

from bench import machine, wire
from bench.rig import JSON_ERROR, NEVER, Daemon, Rig, Tree, post_script, rate, wrk
from bench.table import NOW, Row, at_least_of_baseline, at_most, not_worse
from harness.ports import free_port
from harness.sidecar import Setting

LIMIT: Final = 5
LATER: Final = 15
IDLE_S: Final = 2.5
"""How long a fresh process does nothing before its first error. A container lives longer."""

DATAGRAMS_A_SECOND: Final = 20_000


def pings(rig: Rig) -> Iterator[Row]:
    """``POST /errors`` with JSON over 32 kept connections, beside stock aiohttp."""
    script, seconds = post_script(rig.directory), 1 if rig.is_quick else 3
    stock = rig.stock()
    daemons = {tree.name: rig.start(tree, "pings", error_limit=NEVER) for tree in rig.trees}
    baseline: list[float] = []

    def a_second(port: int) -> float:
        return rate(wrk(f"http://127.0.0.1:{port}/errors", 32, seconds, script))

    def measured(tree: Tree) -> float:
        if tree.name == NOW:
            baseline.append(a_second(stock.port))
        return a_second(daemons[tree.name].address("local")[1])

    samples = rig.in_turn(measured)
    for server in (stock, *daemons.values()):
        server.stop()
    yield Row("POST /errors, JSON, 32 kept connections", "/s", samples, at_least_of_baseline(0.97), baseline)


def culls(rig: Rig) -> Iterator[Row]:
    """From the reply to the fifth error to the first 503, without a settle time, with Redis."""
    first = rig.in_turn(lambda tree: _culls_ms(rig, tree, 1)[0], 2 if rig.is_quick else 7)
    yield Row("fifth error to 503, first of a process", "ms", first, at_most(6))
    later = {tree.name: _culls_ms(rig, tree, 1 + LATER)[1:] for tree in rig.trees}
    yield Row("the same, later", "ms", later, at_most(5))
    kept = {tree.name: _culls_ms(rig, tree, 1 + LATER, state_dir=rig.directory / "state")[1:] for tree in rig.trees}
    yield Row("the same, with a state directory: and one fsync", "ms", kept)


def _culls_ms(rig: Rig, tree: Tree, culls: int, **more: Setting) -> list[float]:
    """The times of so many culls of one new process, each of another incarnation."""
    numbers: dict[str, Setting] = {"error_limit": LIMIT, "settle": 0, "budget": 1000, "budget_window": "1h"}
    daemon = rig.start(tree, "cull", service=f"{time.time_ns()}", redis_url=rig.redis.url, **numbers, **more)
    with wire.connect(daemon.address("local")) as local, wire.connect(daemon.address("public")) as public:
        taken = [_cull_ms(local, public, f"life-{number}") for number in range(culls)]
    daemon.stop()
    return taken


def _cull_ms(local: socket.socket, public: socket.socket, app_start: str) -> float:
    """Begin an incarnation of the app, report five errors, and poll until health answers 503."""
    announce = wire.request("POST", "/errors", json.dumps({"count": 0, "app_start": app_start}))
    while json.loads(wire.body(wire.expect(202, local, announce)))["state"] != "up":
        time.sleep(0.01)
    poll, error = wire.request("GET", "/health"), wire.request("POST", "/errors", JSON_ERROR)
    time.sleep(IDLE_S if app_start == "life-0" else 0.3)
    wire.expect(200, public, poll)
    for _ in range(LIMIT):
        wire.expect(202, local, error)
    begun = time.perf_counter()
    while wire.status(wire.ask(public, poll)) != 503:
        if time.perf_counter() - begun > wire.TIMEOUT_S:
            raise RuntimeError("health did not flip")
    return (time.perf_counter() - begun) * 1e3


def datagrams(rig: Rig) -> Iterator[Row]:
    """CPU of a daemon for each datagram at a fixed rate: equal ones, and such that all differ."""
    for words, form in (("equal", b"errors:1|c|#kind:redis"), ("all differ", b"errors:1|c|#kind:redis,request:%d")):
        samples = rig.in_turn(partial(_datagram_us, rig, form=form))
        yield Row(f"datagram, {words}, at {DATAGRAMS_A_SECOND:,}/s", "us CPU", samples, not_worse())


def _datagram_us(rig: Rig, tree: Tree, form: bytes) -> float:
    port, seconds = free_port(), 0.5 if rig.is_quick else 2.0
    daemon = rig.start(tree, "datagrams", statsd_listen=f"127.0.0.1:{port}", error_limit=NEVER)
    count = int(seconds * DATAGRAMS_A_SECOND)
    packets = [form % number if b"%" in form else form for number in range(count)]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("127.0.0.1", port))
        before, begun = machine.cpu_s(daemon.pid), time.perf_counter()
        for number, packet in enumerate(packets):
            while (time.perf_counter() - begun) * DATAGRAMS_A_SECOND < number:
                pass
            sender.send(packet)
    time.sleep(0.2)  # the last ones are read
    taken_us = (machine.cpu_s(daemon.pid) - before) / count * 1e6
    _check(daemon, count)
    daemon.stop()
    return taken_us


def _check(daemon: Daemon, count: int) -> None:
    errors = sum(value for name, value in daemon.metrics().items() if name.startswith("arbiter_errors_total"))
    if errors < 0.99 * count:
        raise RuntimeError(f"{errors} of {count} datagrams arrived")
