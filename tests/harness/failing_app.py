"""The app of tests/apps that fails as told, in a process of its own."""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from harness.child import Child
from harness.ports import free_port

_PROGRAM = Path(__file__).parents[1] / "apps" / "failing_app.py"


class FailingApp(Child):
    """``results_port``: the local door of the sidecar beside it, if there is one."""

    def __init__(self, directory: Path, name: str, results_port: int | None = None) -> None:
        super().__init__(name, directory)
        self._results_port = results_port
        self.port = free_port()

    def fail(self, share: float) -> None:
        """Let this share of its requests fail from now on."""
        self._ask("POST", f"/share/{share}")

    def counts(self) -> dict[str, int]:
        """How many requests it has served, ``ok`` and ``failed``."""
        counts: dict[str, int] = json.loads(self._ask("GET", "/counts"))
        return counts

    def served(self) -> int:
        """How many requests it has seen, other than those of HAProxy's check."""
        return sum(self.counts().values())

    def _ask(self, method: str, path: str) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request(method, path, headers={"Connection": "close"})
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def _command(self) -> list[str]:
        results = [str(self._results_port)] if self._results_port else []
        return [sys.executable, str(_PROGRAM), self.name, str(self.port), *results]

    def _is_ready(self) -> bool:
        return self._ask("GET", "/") == "well"


def shares(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, float]:
    """The share of each app in what all have served from one moment to another."""
    served = {name: after[name] - before[name] for name in before}
    return {name: count / sum(served.values()) for name, count in served.items()}
