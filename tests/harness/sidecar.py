"""A real sidecar in its own process, configured by its environment."""

from __future__ import annotations

import http.client
import json
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from harness.certificates import client_context
from harness.child import Child, python_env
from harness.ports import free_port
from harness.waiting import wait_for
from sidecar.net.credential_files import KeyPair

if TYPE_CHECKING:
    from collections.abc import Mapping

Setting = str | float | Path
_LISTENERS = ("local_listen", "public_listen", "agent_listen")
_TIMEOUT_S = 5.0
NO_GATES: dict[str, Setting] = {
    "min_healthy": "0",
    "trial": "off",
    "outlier": "off",
    "refund": "off",
    "after_data_loss": "continue",
}
"""Without any gate of the fleet: a container is culled at once."""
GATES: dict[str, Setting] = {
    "min_healthy": "50%",
    "trial": "on",
    "outlier": "on",
    "refund": "on",
    "after_data_loss": "wait",
}
"""The defaults, for tests of the fleet."""
AT_ONCE: dict[str, Setting] = {
    "settle": "0s",
    "drain": "0s",
    "beat_interval": "500ms",
    "redis_timeout": "10s",
    "check_interval": "60s",
}
"""A cull without a wait. Nothing times out on a busy machine; the next check is not awaited, because reports, beats and
answers are handled when they come."""
ASKS_AGAIN: dict[str, Setting] = {**AT_ONCE, "redis_timeout": "4s", "check_interval": "4100ms"}
"""The same for tests that wait for the next claim after a refusal: it comes at the next check, and a time-out of Redis
has to be shorter than the interval of checks."""


class Reply(NamedTuple):
    """The response to one request."""

    status: int
    headers: http.client.HTTPMessage
    body: str

    def json(self) -> Any:
        return json.loads(self.body)


class Sidecar(Child):
    """``python -m sidecar run`` with listeners on free ports, the same over all its starts.

    Settings are those of the daemon in lower case (``error_limit=5``, ``redis_url=...``). They win over the defaults of
    the harness: it enforces also without Redis, no fleet gates, no drain at the stop, JSON logs, state in
    ``<directory>/<name>.state``. A listener that ``tls_listeners`` names is asked over TLS, and any certificate of it
    is accepted; with ``tls_client_ca`` it is shown its own.
    """

    def __init__(self, directory: Path, name: str = "a", **settings: Setting) -> None:
        super().__init__(f"sidecar-{name}", directory)
        state_dir = directory / f"{name}.state"
        state_dir.mkdir(exist_ok=True)
        self.settings: dict[str, Setting] = {
            "instance": name,
            "service": "app",
            "alone": "true",
            "state_dir": state_dir,
            "stop_drain": "0s",
            **NO_GATES,
            **{listener: f"127.0.0.1:{free_port()}" for listener in _LISTENERS if listener not in settings},
            **settings,
        }

    def address(self, listener: str) -> tuple[str, int]:
        """Host and port of ``local``, ``public``, ``agent`` or ``page``."""
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
        """One request on a new connection; ``listener`` may also be ``socket``, the unix socket."""
        connection = self._connection(listener)
        try:
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            return Reply(response.status, response.headers, response.read().decode())
        finally:
            connection.close()

    def post_error(self, n: int = 1, **fields: object) -> dict[str, Any]:
        """Report n errors one by one, each with these fields; the last reply. Every reply must be 202."""
        body = json.dumps(fields) if fields else None
        headers = {"Content-Type": "application/json"} if fields else None
        replies = [self.request("local", "POST", "/errors", body, headers) for _ in range(n)]
        assert [reply.status for reply in replies] == [202] * n, replies
        last: dict[str, Any] = replies[-1].json()
        return last

    def health(self, path: str = "/health") -> tuple[int, str]:
        """Status and body of a health answer."""
        reply = self.request("public", "GET", path)
        return reply.status, reply.body

    def await_health(self, status: int, path: str = "/health") -> None:
        """Wait until health answers with this status."""
        wait_for(lambda: self.health(path)[0] == status, timeout_s=60, what=f"{path} of {self.name} is {status}")

    def verdict(self) -> dict[str, Any]:
        answer: dict[str, Any] = self.request("local", "GET", "/verdict").json()
        return answer

    def metrics(self) -> dict[str, float]:
        """Every sample of ``/metrics``, as ``name`` or ``name{label="value",...}`` with labels in order."""
        page = self.request("public", "GET", "/metrics").body
        families = text_string_to_metric_families(page)
        return {_key(s.name, s.labels): float(s.value) for family in families for s in family.samples}

    def agent_line(self) -> str:
        """The answer of the agent-check, with its newline."""
        with socket.create_connection(self.address("agent"), _TIMEOUT_S) as connection:
            return b"".join(iter(lambda: connection.recv(4096), b"")).decode()

    def cpu_s(self) -> float:
        """The time of the processor that it has used since its start."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_mib(self) -> float:
        """The peak of its memory."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024

    def log_lines(self) -> list[dict[str, Any]]:
        """The complete lines of the log; a line that is not a JSON object comes as ``{"unparsed": line}``.

        A thread of the sidecar writes them, a moment after the answers of its listeners: ``wait_for`` a line.
        """
        complete, _, _ = self.output().rpartition("\n")
        return [_parsed(line) for line in complete.splitlines()]

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "sidecar", "run"]

    def _is_ready(self) -> bool:
        return self.health("/livez")[0] == 200

    def environ(self) -> dict[str, str]:
        """Its settings as environment variables."""
        return {f"ARBITER_{key.upper()}": _written(value) for key, value in self.settings.items()}

    def _env(self) -> dict[str, str]:
        return python_env(**self.environ())

    def _connection(self, listener: str) -> http.client.HTTPConnection:
        if listener == "socket":
            return _UnixConnection(str(self.settings["socket"]))
        if "tls_cert" in self.settings and listener in str(self.settings.get("tls_listeners", "page")).split(","):
            own = KeyPair(*(str(self.settings[name]) for name in ("tls_cert", "tls_key")))
            context = client_context(own if "tls_client_ca" in self.settings else None)
            return http.client.HTTPSConnection(*self.address(listener), timeout=_TIMEOUT_S, context=context)
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
