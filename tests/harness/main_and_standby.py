"""Sidecars that share a run lock: a main, its standby, and their successors."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any, Self

from harness.ports import free_ports
from harness.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from harness.sidecar import Setting, Sidecar


class MainAndStandby:
    """One main and one standby with the same settings, however often the main ends.

    ``unstarted(name, **settings)`` makes a sidecar that its owner stops at the end.
    """

    def __init__(self, unstarted: Any, directory: Path, **settings: Setting) -> None:
        listeners = ("public_listen", "local_listen", "agent_listen")
        ports = zip(listeners, free_ports(len(listeners)), strict=True)
        self.settings: dict[str, Setting] = {
            "instance": "a",
            "state_dir": "",
            "run_lock": directory / "lock",
            "standby": True,
            **{name: f"127.0.0.1:{port}" for name, port in ports},
            **settings,
        }
        self._unstarted = unstarted
        self._count = 0
        self.main = self.another()
        self.standby = self.main

    def another(self, **settings: Setting) -> Sidecar:
        """A further sidecar, not started."""
        self._count += 1
        made: Sidecar = self._unstarted(f"s{self._count}", **{**self.settings, **settings})
        return made

    def start(self) -> Self:
        """Start both."""
        self.main.launch()
        self.main.ready()
        self.await_standby()
        return self

    def await_standby(self, **settings: Setting) -> None:
        """Start the next standby, and wait until it waits for the end of the main."""
        self.standby = self.another(**settings)
        self.standby.launch()
        wait_for(self._says_ready, timeout_s=60, what="the standby says that it is ready")

    def _says_ready(self) -> bool:
        return any(line.get("message") == "standby is ready" for line in self.standby.log_lines())

    def end_main(self, number: signal.Signals) -> float:
        """Send this signal to the main, and wait until the standby serves in its place. The time of the signal."""
        at = time.monotonic()
        os.kill(self.main.pid, number)
        ended, self.main = self.main, self.standby
        code = ended.wait()
        assert code == (-number if number is signal.SIGKILL else 0), ended.shown()
        self.main.ready()
        return at
