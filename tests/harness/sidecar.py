"""One real sidecar in a process of its own, configured by its environment alone."""

from __future__ import annotations

import http.client
import json
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from harness.child import Child
from harness.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping

Setting = str | float | Path
_TOP = Path(__file__).parents[2]
_LISTENERS = ("local_listen", "public_listen", "agent_listen")
_TIMEOUT_S = 5.0
NO_GATES: dict[str, Setting] = {
    "min_healthy": "0",
    "never_last": "false",
    "trial": "off",
    "outlier": "off",
    "soft_drain": "off",
    "refund": "off",
    "after_data_loss": "continue",
}
"""What lets a test of anything else cull a container at once, whoever else is there."""
GATES: dict[str, Setting] = {
    "min_healthy": "50%",
    "never_last": "true",
    "trial": "on",
    "outlier": "on",
    "soft_drain": "on",
    "refund": "on",
    "after_data_loss": "wait",
}
"""The defaults, for tests of the fleet."""


class Reply(NamedTuple):
    """What a door answered to one request."""

    status: int
    headers: http.client.HTTPMessage
    body: str

    def json(self) -> Any:
        return json.loads(self.body)


class Sidecar(Child):
    """``python -m sidecar run`` with its listeners on free ports, kept over all its starts.

    Settings are those of the daemon in lower case (``error_limit=5``, ``redis_url=...``); the ones given here
    win over the harness's own: no fleet gates, no drain at the stop, JSON logs, state in ``<directory>/<name>.state``.
    """

    def __init__(self, directory: Path, name: str = "a", **settings: Setting) -> None:
        super().__init__(f"sidecar-{name}", directory)
        state_dir = directory / f"{name}.state"
        state_dir.mkdir(exist_ok=True)
        self.settings: dict[str, Setting] = {
            "instance": name,
            "service": "app",
            "state_dir": state_dir,
            "log_format": "json",
            "stop_drain": "0s",
            **NO_GATES,
            **settings,
        }
        self._own_listeners = [listener for listener in _LISTENERS if listener not in settings]

    def address(self, listener: str) -> tuple[str, int]:
        """Host and port of ``local``, ``public`` or ``agent``."""
        host, _, port = str(self.settings[f"{listener}_listen"]).rpartition(":")
        return host, int(port)

    def request(
        self,
        listener: str,
        method: str,
        path: str,
        body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """One request on a connection of its own; ``listener`` may also be ``socket``, the unix one."""
        connection = self._connection(listener)
        try:
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            return Reply(response.status, response.headers, response.read().decode())
        finally:
            connection.close()

    def post_error(self, n: int = 1, **fields: object) -> dict[str, Any]:
        """Report n errors one by one, each with these fields; the last reply, all of them being 202."""
        body = json.dumps(fields) if fields else None
        headers = {"Content-Type": "application/json"} if fields else None
        replies = [self.request("local", "POST", "/errors", body, headers) for _ in range(n)]
        assert [reply.status for reply in replies] == [202] * n, replies
        last: dict[str, Any] = replies[-1].json()
        return last

    def health(self, path: str = "/health") -> tuple[int, str]:
        """Status and body, as a poller sees them."""
        reply = self.request("public", "GET", path)
        return reply.status, reply.body

    def verdict(self) -> dict[str, Any]:
        answer: dict[str, Any] = self.request("local", "GET", "/verdict").json()
        return answer

    def metrics(self) -> dict[str, float]:
        """Every sample of ``/metrics``, as ``name`` or ``name{label="value",...}`` with labels in order."""
        page = self.request("public", "GET", "/metrics").body
        families = text_string_to_metric_families(page)
        return {_key(s.name, s.labels): float(s.value) for family in families for s in family.samples}

    def agent_line(self) -> str:
        """What the agent-check says, to the end of the connection, newline and all."""
        with socket.create_connection(self.address("agent"), _TIMEOUT_S) as connection:
            return b"".join(iter(lambda: connection.recv(4096), b"")).decode()

    def log_lines(self) -> list[dict[str, Any]]:
        """The complete lines of the log; one that is not a JSON object comes as ``{"unparsed": line}``.

        They are written by a thread of the sidecar's, a moment later than the doors tell: ``wait_for`` one.
        """
        complete, _, _ = self.output().rpartition("\n")
        return [_parsed(line) for line in complete.splitlines()]

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "sidecar", "run"]

    def _is_ready(self) -> bool:
        return self.health("/livez")[0] == 200

    def choose_place(self) -> None:
        """Choose the ports of its listeners, where another process is to open them."""
        for listener, port in zip(self._own_listeners, free_ports(len(self._own_listeners)), strict=True):
            self.settings[listener] = f"127.0.0.1:{port}"

    def environ(self) -> dict[str, str]:
        """Its settings as variables."""
        return {f"ARBITER_{key.upper()}": _written(value) for key, value in self.settings.items()}

    def _choose_place(self) -> None:
        self.choose_place()

    def _env(self) -> dict[str, str]:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("ARBITER_", "NOMAD_"))}
        path = os.pathsep.join(filter(None, (str(_TOP), inherited.get("PYTHONPATH"))))
        return {**inherited, "PYTHONPATH": path, **self.environ()}

    def _connection(self, listener: str) -> http.client.HTTPConnection:
        if listener == "socket":
            return _UnixConnection(str(self.settings["socket"]))
        return http.client.HTTPConnection(*self.address(listener), timeout=_TIMEOUT_S)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_TIMEOUT_S)
        self.sock.connect(self._path)


def _written(value: Setting) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _key(name: str, labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    return f"{name}{{{pairs}}}" if pairs else name


def _parsed(line: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        entry = None
    return entry if isinstance(entry, dict) else {"unparsed": line}
