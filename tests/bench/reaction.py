"""Time from the reply to the fifth error to the first 503 of health, with a real Redis and no settle time.

A container is culled once, by a process that has done nothing else for long. So its first cull has rows of its own: the
median over many lives of one busy process is less than half of it.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING, Final

from bench import wire
from bench.table import Row, at_most, number, spread
from harness.waiting import wait_for

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from pathlib import Path

    from bench.rig import Rig
    from harness.sidecar import Setting, Sidecar

INCARNATIONS: Final = 40
MOST_POLLS: Final = 10_000
LIMIT: Final = 5
TIMER_MS: Final = 5_000
"""Half of the 10 s between two checks of the article; computed, not measured."""

TARGET_MS: Final = 10
FIRST_MS: Final = 2
FIRST_WITHOUT_BYTECODE_MS: Final = 10
IDLE_S: Final = 2.5
"""How long a fresh process does nothing before its first error. A container lives longer."""

FRESH: Final = 7
ERROR: Final = json.dumps({"kind": "redis", "message": "timeout after 3.2 s while asking 10.1.2.3:6379"})


def measure(rig: Rig) -> list[Row]:
    """Many lives of one process, then first culls. The incarnation is saved before a claim if there is a directory."""
    plain, kept = "fifth error to flipped health", "the same, with a state directory"
    first = "fifth error to flipped health, first cull of a process"
    state, bytecode = rig.directory / "latches", rig.directory / "bytecode"
    state.mkdir(exist_ok=True)
    bytecode.mkdir(exist_ok=True)
    pings_ms = rig.worker("idle_pings", rig.redis.url, str(IDLE_S), str(_fresh(rig)))
    rig.notes.append(f"first cull of a process: the baseline is three PINGs of an idle process, {spread(pings_ms)} ms")
    rows = [
        _row(rig, plain, _sidecar(rig, "reaction"), limited=True),
        _row(rig, kept, _sidecar(rig, "kept", state_dir=state), limited=False),
        _first_row(rig, first, median(pings_ms), FIRST_MS),
    ]
    with _without(bytecode):
        rows.append(_first_row(rig, f"{first}, without bytecode", median(pings_ms), FIRST_WITHOUT_BYTECODE_MS))
    rows.append(_first_row(rig, "fifth error at the first 200 to flipped health", None, idle_s=0.0))
    return rows


def _fresh(rig: Rig) -> int:
    return 3 if rig.quick else FRESH


def _sidecar(rig: Rig, name: str, **more: Setting) -> Sidecar:
    url = rig.redis.url
    numbers: dict[str, Setting] = {"error_limit": LIMIT, "settle": 0, "budget": 1000, "budget_window": "1h"}
    return rig.sidecar(name, service=name, redis_url=url, trial="off", **numbers, **more)


def _row(rig: Rig, figure: str, sidecar: Sidecar, *, limited: bool) -> Row:
    rig.start(sidecar)
    with wire.connect(sidecar.address("local")) as pings, wire.connect(sidecar.address("public")) as health:
        taken = [
            _incarnation_ms(pings, health, f"life-{number}") for number in range(10 if rig.quick else INCARNATIONS)
        ]
    sidecar.stop()
    rig.notes.append(
        f"{figure}: {spread(taken)} ms over {len(taken)} lives, the first of a sidecar just started "
        f"{number(taken[0])} ms; the baseline is computed, half of the article's timer"
    )
    return Row(figure, "ms", median(taken), TIMER_MS, at_most(TARGET_MS, "ms") if limited else None)


def _first_row(
    rig: Rig, figure: str, baseline_ms: float | None, target_ms: float | None = None, *, idle_s: float = IDLE_S
) -> Row:
    """The first cull of each of several processes, whose app was announced ``idle_s`` seconds before the errors."""
    taken = [_first_ms(rig, f"{len(rig.notes)}-{fresh}", idle_s) for fresh in range(_fresh(rig))]
    rig.notes.append(f"{figure}: {spread(taken)} ms over {len(taken)} processes")
    return Row(figure, "ms", median(taken), baseline_ms, at_most(target_ms, "ms") if target_ms else None)


def _first_ms(rig: Rig, name: str, idle_s: float) -> float:
    sidecar = rig.start(_sidecar(rig, f"first-{name}"))
    with wire.connect(sidecar.address("local")) as pings, wire.connect(sidecar.address("public")) as health:
        _begin(pings, "life")
        if idle_s:
            wait_for(lambda: sidecar.metrics().get("arbiter_fleet_alive") == 1, timeout_s=60, what="the first beat")
            time.sleep(idle_s)
        taken_ms = _flip_ms(pings, health)
    sidecar.stop()
    return taken_ms


@contextmanager
def _without(bytecode: Path) -> Iterator[None]:
    """Let processes that start meanwhile find no bytecode, and write none: the directory stays empty."""
    os.environ.update(PYTHONDONTWRITEBYTECODE="1", PYTHONPYCACHEPREFIX=str(bytecode))
    try:
        yield
    finally:
        del os.environ["PYTHONDONTWRITEBYTECODE"], os.environ["PYTHONPYCACHEPREFIX"]


def _incarnation_ms(pings: socket.socket, health: socket.socket, app_start: str) -> float:
    """Begin an incarnation of the app, and flip its health."""
    _begin(pings, app_start)
    return _flip_ms(pings, health)


def _flip_ms(pings: socket.socket, health: socket.socket) -> float:
    """Report five errors, and poll until health answers 503."""
    poll, ping = wire.request("GET", "/health"), wire.request("POST", "/errors", ERROR)
    wire.expect(200, health, poll)
    for _ in range(LIMIT):
        wire.expect(202, pings, ping)
    begun = time.perf_counter()
    for _ in range(MOST_POLLS):
        if wire.status(wire.ask(health, poll)) == 503:
            return (time.perf_counter() - begun) * 1000
    raise RuntimeError(f"health did not flip within {MOST_POLLS} polls")


def _begin(pings: socket.socket, app_start: str) -> None:
    announce = wire.request("POST", "/errors", json.dumps({"count": 0, "app_start": app_start}))
    for _ in range(MOST_POLLS):
        if json.loads(wire.body(wire.expect(202, pings, announce)))["state"] == "up":
            return
    raise RuntimeError("the new incarnation did not come up")
