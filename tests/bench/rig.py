"""The parts that every benchmark uses: checkouts, their daemons on one core, clients on another, rounds in turn."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

from bench import machine, wire
from harness.child import Child
from harness.children import Children
from harness.ports import free_port
from harness.redis_server import RedisServer
from harness.sidecar import Setting, Sidecar

NEVER: Final = 1_000_000_000
"""An error limit that no benchmark reaches."""

JSON_ERROR: Final = json.dumps({"kind": "redis", "message": "timeout after 3.2 s while asking 10.1.2.3:6379"})


_OF_0_2: Final[dict[str, Setting]] = {"never_last": "false", "scrape_timeout": "150ms"}
"""Settings that 0.3 does not have, as it acts."""


@dataclass(frozen=True)
class Tree:
    """A checkout whose daemon is measured."""

    name: str
    path: Path

    @cached_property
    def is_0_2(self) -> bool:
        """Whether this is version 0.2, which has other settings."""
        return "NEVER_LAST" in (self.path / "deploy" / "settings.md").read_text()

    @property
    def settings(self) -> dict[str, Setting]:
        """Settings that only this checkout needs."""
        return _OF_0_2 if self.is_0_2 else {}

    def scraped_each(self, interval_s: float) -> dict[str, Setting]:
        """The settings of the time between two scrapes."""
        if self.is_0_2:
            return {"scrape_interval": interval_s}
        return {"check_interval": interval_s, "redis_timeout": interval_s / 2}

    def env(self, environ: Mapping[str, str]) -> dict[str, str]:
        """An environment in which Python finds this checkout, and keeps its bytecode as an installed one does."""
        kept = {name: value for name, value in environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {**kept, "PYTHONPATH": str(self.path)}


class Daemon(Sidecar):
    """The daemon of a checkout; without a state directory unless one is given."""

    def __init__(self, tree: Tree, directory: Path, name: str, **settings: Setting) -> None:
        super().__init__(directory, f"{name}-{tree.name}", **{"state_dir": "", **tree.settings, **settings})
        self.tree = tree

    def _env(self) -> dict[str, str]:
        return self.tree.env(super()._env())

    def await_answer(self, path: str, status: int = 200) -> float:
        """Poll ``path`` on new connections until it answers so; the time of the answer (``perf_counter``)."""
        request, ends_at = wire.request("GET", path, close=True), time.monotonic() + 30
        while self.alive and time.monotonic() < ends_at:
            try:
                if wire.status(wire.ask_once(self.address("public"), request)) == status:
                    return time.perf_counter()
            except OSError:
                time.sleep(0.0005)
        raise RuntimeError(f"no {status} at {path}\n{self.shown()}")


class Baseline(Child):
    """The server of ``stock.py``."""

    def __init__(self, directory: Path) -> None:
        super().__init__("baseline", directory)
        self.port = free_port()

    def _command(self) -> list[str]:
        return [sys.executable, str(Path(__file__).with_name("stock.py")), str(self.port)]

    def _is_ready(self) -> bool:
        wire.connect(("127.0.0.1", self.port)).close()
        return True


@dataclass
class Rig:
    """Starts daemons on the servers' core, and stops them with ``close``."""

    directory: Path
    trees: Sequence[Tree]
    is_quick: bool = False
    _children: Children = field(default_factory=Children)
    _started: int = 0

    def __post_init__(self) -> None:
        cores = sorted(os.sched_getaffinity(0))
        self.all_cores, self.server_core, self.client_core = set(cores), {cores[0]}, {cores[-1]}
        os.sched_setaffinity(0, self.client_core)

    @property
    def rounds(self) -> int:
        """The number of rounds of a figure."""
        return 2 if self.is_quick else 5

    def daemon(self, tree: Tree, name: str, **settings: Setting) -> Daemon:
        """A daemon, not started."""
        self._started += 1
        return self._children.adopt(Daemon(tree, self.directory, f"{name}{self._started}", **settings))

    def start(self, tree: Tree, name: str, **settings: Setting) -> Daemon:
        """A daemon on the servers' core, ready."""
        daemon = self.daemon(tree, name, **settings)
        with self.on_server_core():
            daemon.launch()
        daemon.await_answer("/livez")
        return daemon

    def stock(self) -> Baseline:
        """Stock aiohttp on the servers' core, ready."""
        with self.on_server_core():
            return self._children.adopt(Baseline(self.directory)).start()

    def on_server_core(self) -> AbstractContextManager[None]:
        """Start processes on the servers' core meanwhile."""
        return machine.on_cores(self.server_core)

    @cached_property
    def redis(self) -> RedisServer:
        """A real Redis, on the clients' core."""
        return self._children.adopt(RedisServer(self.directory)).start()

    def in_turn(self, measure: Callable[[Tree], float], rounds: int = 0) -> dict[str, list[float]]:
        """Measure the checkouts A B A B, so that other load of the machine affects all alike; the samples of each."""
        samples: dict[str, list[float]] = {tree.name: [] for tree in self.trees}
        for _ in range(rounds or self.rounds):
            for tree in self.trees:
                samples[tree.name].append(measure(tree))
        return samples

    def close(self) -> None:
        """Stop everything."""
        self._children.stop()


# -- wrk and ab ---------------------------------------------------------------------------------------------------


def post_script(directory: Path) -> Path:
    """A script that makes wrk report errors."""
    path = directory / "post.lua"
    path.write_text(
        f'wrk.method = "POST"\nwrk.headers["Content-Type"] = "application/json"\nwrk.body = {json.dumps(JSON_ERROR)}\n'
    )
    return path


def wrk(url: str, connections: int, seconds: float, script: Path | None = None) -> list[str]:
    """The command of a load by kept connections, each with one request in flight."""
    options = ["-s", str(script)] if script else []
    return ["wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s", *options, url]


def rate(command: Sequence[str]) -> float:
    """The requests a second of a load. Raises RuntimeError if one of them failed."""
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if failures := failed(text):
        raise RuntimeError(f"{' '.join(command)}: {failures}")
    found = re.search(r"Requests/sec:\s+([\d.]+)", text)
    assert found, text
    return float(found[1])


def failed(text: str) -> str:
    """What wrk or ab says of requests that failed; empty if none did."""
    found = re.findall(r"(Socket errors:.*|Non-2xx.*|Failed requests:\s+[1-9].*)", text)
    return "; ".join(re.sub(r"\s+", " ", words) for words in found)
