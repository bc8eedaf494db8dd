"""Sidecars on a loop of their own in a thread of the tests: for what they answer, to commands and to one another.

Signals, exit codes of the daemon and its log need a process: ``harness.sidecar``. What stands inside needs the loop of
the test: ``harness.composition``.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

from harness.sidecar import Setting, Sidecar
from harness.waiting import wait_for
from sidecar.app import build, daemon
from sidecar.config.load import load
from sidecar.net.threads import DaemonThreads

if TYPE_CHECKING:
    from collections.abc import Sequence

_END_S = 60.0
UNHURRIED: dict[str, Setting] = {"redis_timeout": "10s", "check_interval": "60s"}
"""Nothing times out on a busy machine; reports, beats and answers are handled when they come."""


class SidecarLoop:
    """Runs these sidecars on one loop. ``start`` and ``stop`` wait until it is so."""

    def __init__(self, sidecars: Sequence[Sidecar]) -> None:
        self._sidecars = sidecars
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._thresholds = gc.get_threshold()

    def start(self) -> Self:
        self._thread.start()
        for sidecar in self._sidecars:
            wait_for(lambda sidecar=sidecar: self._is_up(sidecar), timeout_s=60, what=f"{sidecar.name} serves")  # type: ignore[misc]
        return self

    def stop(self) -> None:
        if self._loop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(_END_S)
            assert not self._thread.is_alive(), f"{self._sidecars[0].name} does not end"
            gc.set_threshold(*self._thresholds)  # objects stay frozen: to look at them at each start takes 0.2 s

    def _is_up(self, sidecar: Sidecar) -> bool:
        assert self._thread.is_alive(), f"{sidecar.name} has ended"
        return sidecar.health("/livez")[0] == 200

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_default_executor(DaemonThreads())
        configs = [load({}, sidecar.environ()) for sidecar in self._sidecars]
        async with asyncio.TaskGroup() as group:
            for config in configs:
                group.create_task(daemon.serve(config, build.metrics_of(config), self._stop))


class SidecarThread(Sidecar):
    """One sidecar; settings as ``Sidecar`` has them, and ``UNHURRIED``."""

    def __init__(self, directory: Path, name: str = "a", **settings: Setting) -> None:
        super().__init__(directory, name, **{**UNHURRIED, **settings})
        self._loop = SidecarLoop([self])

    def start(self) -> Self:
        self._loop.start()
        return self

    def stop(self, timeout_s: float = _END_S) -> None:
        del timeout_s
        self._loop.stop()
