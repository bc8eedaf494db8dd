"""A real Prometheus and a real Alertmanager on loopback."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from harness.binaries import require
from harness.child import Child
from harness.http_request import request
from harness.ports import free_port

_ANSWER_S: Final = 10.0
_ALERTMANAGER: Final = """
route:
  receiver: "nobody"
  group_by: ["alertname", "service"]
  group_wait: 0s
receivers:
  - name: "nobody"
"""


class Prometheus(Child):
    """A server with the configuration file ``config``; its data is in ``directory``."""

    def __init__(self, directory: Path, config: Path) -> None:
        super().__init__("prometheus", directory)
        self._program = require("prometheus")
        self._config = config
        self.port = free_port()

    def instant(self, expression: str) -> list[dict[str, Any]]:
        """The vector of ``expression`` now; AssertionError for an error or a warning."""
        series: list[dict[str, Any]] = self._answer("/api/v1/query", query=expression)["result"]
        return series

    def over(self, expression: str, start: float, end: float, step_s: float) -> list[dict[str, Any]]:
        """The series of ``expression`` from ``start`` to ``end`` (Unix seconds), as a graph queries them."""
        series: list[dict[str, Any]] = self._answer(
            "/api/v1/query_range", query=expression, start=str(start), end=str(end), step=str(step_s)
        )["result"]
        return series

    def rules(self) -> list[dict[str, Any]]:
        """All recording and alerting rules, as Prometheus reads them."""
        groups: list[dict[str, Any]] = self._answer("/api/v1/rules")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def metrics(self, match: str) -> set[str]:
        """The names of all series that ``match`` selects."""
        return set(self._answer("/api/v1/label/__name__/values", **{"match[]": match}))

    def _answer(self, path: str, **parameters: str) -> Any:
        reply = json.loads(request(self.port, f"{path}?{urlencode(parameters)}", timeout_s=_ANSWER_S)[1])
        assert reply["status"] == "success", f"{parameters}: {reply['error']}"
        assert not reply.get("warnings"), f"{parameters}: {reply['warnings']}"
        return reply["data"]

    def _command(self) -> list[str]:
        return [
            self._program,
            f"--config.file={self._config}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            f"--storage.tsdb.path={self.directory / 'prometheus-data'}",
            "--log.level=warn",
        ]

    def _is_ready(self) -> bool:
        return request(self.port, "/-/ready", timeout_s=_ANSWER_S)[0] == 200


def promtool(*arguments: str | Path) -> str:
    """The complaints of promtool; empty without any."""
    command = [require("promtool"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    output = done.stdout + done.stderr
    return output if done.returncode or "WARNING" in output else ""


def found_targets(config: Path, job: str) -> list[dict[str, str]]:
    """The labels of the targets that the discovery of this job found within a second and that relabelling kept."""
    command = [require("promtool"), "check", "service-discovery", "--timeout=1s", str(config), job]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [target["labels"] for target in json.loads(done.stdout) if target["labels"]]


class Alertmanager(Child):
    """An Alertmanager without peers and receivers; its alerts are read through the API."""

    def __init__(self, directory: Path) -> None:
        super().__init__("alertmanager", directory)
        self._program = require("prometheus-alertmanager")
        self.port = free_port()
        self._config = directory / "alertmanager.yml"
        self._config.write_text(_ALERTMANAGER)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _alerts(self) -> list[dict[str, Any]]:
        status, body = request(self.port, "/api/v2/alerts")
        if status != 200:
            raise ConnectionError(f"{status} {body}")
        alerts: list[dict[str, Any]] = json.loads(body)
        return alerts

    def severities(self) -> dict[str, str]:
        """The severity of each firing alert, by name."""
        return {alert["labels"]["alertname"]: alert["labels"]["severity"] for alert in self._alerts()}

    def _command(self) -> list[str]:
        return [
            self._program,
            f"--config.file={self._config}",
            f"--storage.path={self.directory / 'alertmanager.data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--cluster.listen-address=",
        ]

    def _is_ready(self) -> bool:
        return "OK" in request(self.port, "/-/ready")[1]
