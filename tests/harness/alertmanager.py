"""A real Alertmanager on loopback, alone and without receivers of its own."""

from __future__ import annotations

import http.client
import json
import subprocess
from typing import TYPE_CHECKING, Any

from harness.binaries import require
from harness.child import Child
from harness.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

_CONFIG = """
route:
  receiver: "nobody"
  group_by: ["alertname", "service"]
  group_wait: 0s
receivers:
  - name: "nobody"
"""


class Alertmanager(Child):
    """One Alertmanager; alerts are read back through its API and by ``amtool``."""

    def __init__(self, directory: Path, name: str = "alertmanager") -> None:
        super().__init__(name, directory)
        self._program = require("prometheus-alertmanager")
        self.port = 0
        self._config = directory / f"{name}.yml"
        self._storage = directory / f"{name}.data"
        self._config.write_text(_CONFIG)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def alerts(self) -> list[dict[str, Any]]:
        """The alerts that are firing, as the API has them."""
        found: list[dict[str, Any]] = json.loads(self._get("/api/v2/alerts"))
        return found

    def queried(self, *matchers: str) -> str:
        """What a person sees who asks ``amtool``."""
        call = [require("amtool"), f"--alertmanager.url={self.url}", "alert", "query", "-o", "extended", *matchers]
        return subprocess.run(call, capture_output=True, text=True, timeout=20, check=True).stdout

    def _get(self, path: str) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read().decode()
            if response.status != 200:
                raise ConnectionError(f"{response.status} {body}")
            return body
        finally:
            connection.close()

    def _choose_place(self) -> None:
        self.port = free_port()

    def _command(self) -> list[str]:
        return [
            self._program,
            f"--config.file={self._config}",
            f"--storage.path={self._storage}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--cluster.listen-address=",
        ]

    def _is_ready(self) -> bool:
        return "OK" in self._get("/-/ready")
