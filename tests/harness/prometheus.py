"""A real Prometheus on loopback, with a configuration of our own."""

from __future__ import annotations

import http.client
import json
import subprocess
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from harness.binaries import require
from harness.child import Child
from harness.ports import free_port

ANSWER_S: Final = 10.0


class Prometheus(Child):
    """One server on ``config``, a file whose relative paths stand beside it; its data is in ``directory``."""

    def __init__(self, directory: Path, config: Path) -> None:
        super().__init__("prometheus", directory)
        self._program = require("prometheus")
        self._config = config
        self.port = 0

    def instant(self, expression: str) -> list[dict[str, Any]]:
        """The vector that ``expression`` is now; AssertionError if it is erroneous, or gives a warning."""
        found: list[dict[str, Any]] = self._answer("/api/v1/query", query=expression)["result"]
        return found

    def over(self, expression: str, start: float, end: float, step_s: float) -> list[dict[str, Any]]:
        """The same over a time, from and to in Unix seconds, as a graph asks for it."""
        found: list[dict[str, Any]] = self._answer(
            "/api/v1/query_range", query=expression, start=str(start), end=str(end), step=str(step_s)
        )["result"]
        return found

    def rules(self) -> list[dict[str, Any]]:
        """All rules, recording and alerting, as it understood them."""
        groups: list[dict[str, Any]] = self._answer("/api/v1/rules")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def targets(self) -> dict[str, Any]:
        """What it scrapes (``activeTargets``) and what its configuration left out (``droppedTargets``)."""
        found: dict[str, Any] = self._answer("/api/v1/targets")
        return found

    def metrics(self, match: str) -> set[str]:
        """The names of all series that ``match`` selects."""
        return set(self._answer("/api/v1/label/__name__/values", **{"match[]": match}))

    def _answer(self, path: str, **parameters: str) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_S)
        try:
            connection.request("GET", f"{path}?{urlencode(parameters)}")
            reply = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        assert reply["status"] == "success", f"{parameters}: {reply['error']}"
        assert not reply.get("warnings"), f"{parameters}: {reply['warnings']}"
        return reply["data"]

    def _choose_place(self) -> None:
        self.port = free_port()

    def _command(self) -> list[str]:
        return [
            self._program,
            f"--config.file={self._config}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            f"--storage.tsdb.path={self.directory / 'prometheus-data'}",
            "--log.level=warn",
        ]

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_S)
        try:
            connection.request("GET", "/-/ready")
            return connection.getresponse().status == http.client.OK
        finally:
            connection.close()


def promtool(*arguments: str | Path) -> str:
    """What promtool has to complain of; empty when it is content."""
    command = [require("promtool"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    said = done.stdout + done.stderr
    return said if done.returncode or "WARNING" in said else ""
