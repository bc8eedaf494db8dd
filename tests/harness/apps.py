"""Apps behind a balancer or beside a sidecar, which fail on request."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harness.child import Child
from harness.http_request import request
from harness.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping

PROGRAMS: Final = Path(__file__).parents[1] / "apps"


class FailingApp(Child):
    """``apps/failing_app.py``; it sends its results to ``results_port``, the local listener of its sidecar."""

    def __init__(self, directory: Path, name: str, results_port: int | None = None) -> None:
        super().__init__(name, directory)
        self._results_port = results_port
        self.port = free_port()

    def fail(self, share: float) -> None:
        """Let this share of the requests fail from now on."""
        request(self.port, f"/share/{share}", "POST")

    def counts(self) -> dict[str, int]:
        """The number of requests served, ``ok`` and ``failed``."""
        counts: dict[str, int] = json.loads(request(self.port, "/counts")[1])
        return counts

    def served(self) -> int:
        """The number of requests, without the checks of HAProxy."""
        return sum(self.counts().values())

    def _command(self) -> list[str]:
        results = [str(self._results_port)] if self._results_port else []
        return [sys.executable, str(PROGRAMS / "failing_app.py"), self.name, str(self.port), *results]

    def _is_ready(self) -> bool:
        return request(self.port, "/")[1] == "well"


def shares(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, float]:
    """The share of each app in the requests between two readings of ``served``."""
    served = {name: after[name] - before[name] for name in before}
    return {name: count / sum(served.values()) for name, count in served.items()}
