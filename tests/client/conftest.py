"""Emitters that end with their test, and the process's own one pointed at a door of the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from client.door import Door
from sidecar.client import configure
from sidecar.client.emitter import Emitter
from sidecar.client.messages import DUE
from sidecar.client.outlet import Outlet, Places
from sidecar.client.reporting import EMITTER

Clock = Callable[[], float]
StartEmitter = Callable[..., Emitter]


@pytest.fixture
def door(run_dir: Path) -> Iterator[Door]:
    """A unix datagram socket."""
    with Door(run_dir / "statsd.sock") as door:
        yield door


@pytest.fixture
def udp_door() -> Iterator[Door]:
    with Door() as door:
        yield door


@pytest.fixture
def start_emitter() -> Iterator[StartEmitter]:
    """Makes an emitter to these places; in the end what it still keeps is dropped, which ends its thread."""
    started: list[Emitter] = []

    def start(places: Places, clock: Clock | None = None) -> Emitter:
        emitter = Emitter(Outlet(lambda: places), **({"clock": clock} if clock else {}))
        started.append(emitter)
        return emitter

    yield start
    for emitter in started:
        emitter.use(Outlet(tuple))
        emitter.flush()


@pytest.fixture
def told(door: Door) -> Iterator[Callable[[], dict[str, int]]]:
    """What the functions of ``sidecar.client`` have told the door so far, as sums."""
    configure(socket=str(door.path))
    DUE.clear()
    yield lambda: door.totals_of(EMITTER)
    configure()
    EMITTER.flush()
