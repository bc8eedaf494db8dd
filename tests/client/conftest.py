"""Emitters that end with their test, and the process's own one which sends to a socket of the test."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from client.statsd_receiver import Receiver, Totals
from sidecar.client import configure, exceptions
from sidecar.client.emitter import Emitter
from sidecar.client.messages import DUE
from sidecar.client.outlet import Addresses, Outlet
from sidecar.client.reporting import EMITTER

Clock = Callable[[], float]
StartEmitter = Callable[..., Emitter]


@pytest.fixture(scope="session", autouse=True)
def nowhere() -> None:
    """Keep reports of this process from a sidecar that another test runs at the default address."""
    configure()


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two reports of an exception are the same also on a machine that stops for seconds between them."""
    monkeypatch.setattr(exceptions, "SAME_S", 3600.0)


@pytest.fixture
def receiver(run_dir: Path) -> Iterator[Receiver]:
    """A unix datagram socket."""
    with Receiver(run_dir / "statsd.sock") as receiver:
        yield receiver


@pytest.fixture
def udp_receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def start_emitter() -> Iterator[StartEmitter]:
    """Makes an emitter to these addresses; in the end what it still keeps is dropped, which ends its thread."""
    started: list[Emitter] = []

    def start(addresses: Addresses, clock: Clock | None = None) -> Emitter:
        emitter = Emitter(lambda: Outlet(addresses), clock or time.monotonic)
        started.append(emitter)
        return emitter

    yield start
    for emitter in started:
        emitter.use(lambda: Outlet(()))
        emitter.flush()


@pytest.fixture
def totals(receiver: Receiver) -> Iterator[Totals]:
    """What the functions of ``sidecar.client`` have sent so far, as sums."""
    EMITTER.flush()  # what other tests have reported to nowhere
    configure(socket=str(receiver.path))
    DUE.clear()
    yield lambda: receiver.totals_of(EMITTER)
    configure()
    EMITTER.flush()
