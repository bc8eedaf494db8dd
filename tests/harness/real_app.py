"""The small real apps of tests/apps in processes of their own; each needs Redis for every request."""

from __future__ import annotations

import http.client
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from harness.binaries import require
from harness.child import Child
from harness.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping

APPS = Path(__file__).parents[1] / "apps"
TOP = Path(__file__).parents[2]


class RealApp(Child):
    """``aiohttp`` or ``express``, with this environment beside ours."""

    def __init__(self, directory: Path, program: str, redis_port: int, environment: Mapping[str, str]) -> None:
        super().__init__(f"app-{program}", directory)
        self._program = program
        self._redis_port = redis_port
        self._environment = environment
        self.port = free_port()

    def asked(self, times: int) -> list[int]:
        """The statuses of so many requests, one after the other."""
        return [self._status("/work") for _ in range(times)]

    def _status(self, path: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        finally:
            connection.close()

    def _command(self) -> list[str]:
        ports = [str(self.port), str(self._redis_port)]
        if self._program == "express":
            return [require("node"), str(APPS / "express_app.js"), *ports]
        return [sys.executable, str(APPS / "aiohttp_app.py"), *ports]

    def _env(self) -> dict[str, str]:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("ARBITER_")}
        return {**inherited, "PYTHONPATH": str(TOP), **self._environment}

    def _is_ready(self) -> bool:
        return self._status("/metrics") == 200
