"""The parts that every benchmark uses: servers on one core, clients on another, and alternating rounds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from bench import machine, wire
from bench.load import Order, Tally
from harness.child import Child, python_env
from harness.children import Children
from harness.ports import free_port
from harness.redis_server import RedisServer
from harness.sidecar import Setting, Sidecar

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")
C = TypeVar("C", bound=Child)

NEVER: Final = 1_000_000_000
"""An error limit that no benchmark reaches."""


class Baseline(Child):
    """A server of ``servers.py``. ``beyond`` is its unix socket or the URL of its Redis."""

    def __init__(self, directory: Path, server: str, beyond: str = "") -> None:
        super().__init__(f"baseline-{server}", directory)
        self._server = server
        self._beyond = beyond
        self.port = free_port()

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    def _command(self) -> list[str]:
        script = str(Path(__file__).with_name("servers.py"))
        return [sys.executable, script, self._server, f"127.0.0.1:{self.port}", self._beyond]

    def _is_ready(self) -> bool:
        wire.connect(self.address).close()
        return True


@dataclass
class Rig:
    """Starts servers on the servers' core, and stops them with ``close``.

    ``quick``: short rounds, for development. ``notes``: the notes below the table.
    """

    directory: Path
    quick: bool = False
    notes: list[str] = field(default_factory=list)
    _children: Children = field(default_factory=Children)

    def __post_init__(self) -> None:
        cores = sorted(os.sched_getaffinity(0))
        self.all_cores = set(cores)
        self.server_cores = {cores[0]}
        self.client_cores = {cores[-1]}
        if len(cores) == 1:
            self.notes.append("Only one core: client and server share it, so no figure here means much.")
        os.sched_setaffinity(0, self.client_cores)

    @property
    def rounds(self) -> int:
        return 3 if self.quick else 5

    def sidecar(self, name: str, **settings: Setting) -> Sidecar:
        """A daemon, not started; without a state directory unless one is given."""
        return self._children.adopt(Sidecar(self.directory, name, **{"state_dir": "", **settings}))

    def baseline(self, server: str, beyond: str = "") -> Baseline:
        """A server of ``servers.py``, not started."""
        return self._children.adopt(Baseline(self.directory, server, beyond))

    def start(self, child: C) -> C:
        """Start it on the servers' core, and return it once it is ready."""
        with self.on_server_cores():
            child.start()
        return child

    def on_server_cores(self) -> AbstractContextManager[None]:
        return machine.on_cores(self.server_cores)

    @cached_property
    def redis(self) -> RedisServer:
        """A real Redis, on the clients' core."""
        return self._children.adopt(RedisServer(self.directory)).start()

    def load(self, address: wire.Address, request: bytes, status: int, **how: Any) -> Loading:
        """A warm load generator on the clients' core; ``Order`` has the options."""
        order = Order(address, request.decode(), status, **{"connections": 32, "rate": 0, "warmup_s": 0.3, **how})
        return Loading(order)

    def worker(self, module: str, *arguments: str) -> Any:
        """What ``python -m bench.<module>`` prints as JSON, on the servers' core."""
        with self.on_server_cores():
            command = [sys.executable, "-m", f"bench.{module}", *arguments]
            done = subprocess.run(command, check=True, capture_output=True, env=python_env(), timeout=120)
        return json.loads(done.stdout)

    def close(self) -> None:
        self._children.stop()


class Loading:
    """A running load generator; leaving the context ends it."""

    def __init__(self, order: Order) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.load", json.dumps(asdict(order))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=python_env(),
        )

    def __enter__(self) -> Self:
        if self._line() != "ready":
            raise RuntimeError("the load generator did not get warm")
        return self

    def __exit__(self, *_: object) -> None:
        self._close_input()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(5)

    def tally(self) -> Tally:
        """Wait for the end of the load; the tally."""
        return Tally(**json.loads(self._line()))

    def stop(self) -> Tally:
        """End the load now; the tally."""
        self._close_input()
        return self.tally()

    def _close_input(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()

    def _line(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().decode().strip()


def alternate(rounds: int, *measures: Callable[[], T]) -> Iterator[tuple[T, ...]]:
    """Measure in turn, A B A B, so that other load of the machine affects all alike."""
    for _ in range(rounds):
        yield tuple(measure() for measure in measures)


def medians(rounds: Sequence[tuple[float, ...]]) -> list[float]:
    """The median of each column."""
    return [median(column) for column in zip(*rounds, strict=True)]
