"""Time from the reply to the fifth error to the first 503 of health, with a real Redis and no settle time."""

from __future__ import annotations

import json
import time
from statistics import median
from typing import TYPE_CHECKING, Final

from bench import wire
from bench.table import Row, at_most, number, spread

if TYPE_CHECKING:
    import socket

    from bench.rig import Rig
    from harness.sidecar import Setting, Sidecar

INCARNATIONS: Final = 40
MOST_POLLS: Final = 10_000
LIMIT: Final = 5
TIMER_MS: Final = 5_000
"""Half of the 10 s between two checks of the article; computed, not measured."""

TARGET_MS: Final = 10


def measure(rig: Rig) -> list[Row]:
    """Without and with a state directory, where the incarnation is saved before the claim."""
    plain, kept = "fifth error to flipped health", "the same, with a state directory"
    state = rig.directory / "latches"
    state.mkdir(exist_ok=True)
    return [
        _row(rig, plain, _sidecar(rig, "reaction"), limited=True),
        _row(rig, kept, _sidecar(rig, "kept", state_dir=state), limited=False),
    ]


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


def _incarnation_ms(pings: socket.socket, health: socket.socket, app_start: str) -> float:
    """Begin an incarnation of the app, report five errors, and poll until health answers 503."""
    _begin(pings, app_start)
    poll, ping = wire.request("GET", "/health"), wire.request("POST", "/errors")
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
