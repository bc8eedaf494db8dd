"""A real HAProxy, the shipped configurations for it, and fake agents."""

from __future__ import annotations

import csv
import re
import socket
import subprocess
import threading
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from harness.binaries import require
from harness.child import Child
from harness.ports import free_port
from harness.waiting import wait_for
from sidecar.runlock import durations

if TYPE_CHECKING:
    from collections.abc import Mapping


class Haproxy(Child):
    """One HAProxy in the foreground. A second configuration file gives it an admin socket.

    The directory's path must be short enough for a unix socket (107 bytes).
    """

    def __init__(self, directory: Path, config_text: str, name: str = "haproxy") -> None:
        super().__init__(name, directory)
        self._program = require("haproxy")
        self.admin_socket = directory / f"{name}.sock"
        self.config = directory / f"{name}.cfg"
        self._admin_config = directory / f"{name}-admin.cfg"
        self.config.write_text(config_text)
        self._admin_config.write_text(f"global\n  stats socket {self.admin_socket} mode 600 level admin\n")

    def check(self) -> None:
        """AssertionError for an invalid configuration, and for one with a warning."""
        done = subprocess.run(
            self._call("-c", "-dW"), capture_output=True, text=True, timeout=90, check=False, cwd=self.directory
        )
        assert done.returncode == 0, f"haproxy refuses the configuration\n{done.stdout}{done.stderr}"

    def start(self) -> Self:
        """Check the configuration, start, and return once every listener is open."""
        self.check()
        return super().start()

    def admin(self, command: str) -> str:
        """The admin socket's answer to one command."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(5)
            connection.connect(str(self.admin_socket))
            connection.sendall(f"{command}\n".encode())
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode()

    def show_servers(self) -> dict[tuple[str, str], dict[str, str]]:
        """The row of ``show stat`` for every (backend, server)."""
        rows = csv.DictReader(self.admin("show stat").removeprefix("# ").splitlines())
        return {(row["pxname"], row["svname"]): row for row in rows if row["svname"] not in {"FRONTEND", "BACKEND"}}

    def _command(self) -> list[str]:
        return self._call("-db")

    def _call(self, *modes: str) -> list[str]:
        return [self._program, *modes, "-f", str(self.config), "-f", str(self._admin_config)]

    def _is_ready(self) -> bool:
        # HAProxy opens every listener before it serves one.
        return "Name: HAProxy" in self.admin("show info")


HAPROXY: Final = Path(__file__).parents[2] / "deploy" / "haproxy"
EMPTY_STATE: Final = "1\n"
"""A server-state file without servers: only the version of its format."""


class Ports(NamedTuple):
    """The ports of a server: its app, and what else HAProxy asks there: its agent, or in plain.cfg its health."""

    app: int
    asked: int


def config(name: str, servers: Mapping[str, Ports], *, front: int) -> str:
    """A shipped text with these servers, our port and ten times shorter intervals; ``Haproxy`` adds an admin socket."""
    text = re.sub(r"(?m)^ +(server app|stats socket ).*\n", "", (HAPROXY / f"{name}.cfg").read_text())
    text, count = re.subn(r"(agent-)?port 918[12] ", "", text)
    assert count == 1, "the sidecar is asked at one port"
    asked = "port" if name == "plain" else "agent-port"
    text = text.replace("bind :8000", f"bind 127.0.0.1:{front}\n    http-request set-log-level silent")
    text = text.replace("inter 2s", "inter 200ms").replace("slowstart 20s", "slowstart 2s")
    return text + "".join(
        f"    server {each} 127.0.0.1:{ports.app} {asked} {ports.asked}\n" for each, ports in servers.items()
    )


def cascade(servers: Mapping[str, Ports], *, front: int, metrics: int, state: Path) -> str:
    """The same of cascade.cfg, with a port for its metrics and a state of its servers."""
    state.write_text(EMPTY_STATE)
    text = config("cascade", servers, front=front)
    for old, new in (("bind :8405", f"bind 127.0.0.1:{metrics}"), ("/var/lib/haproxy/server-state", str(state))):
        assert old in text, f"cascade.cfg has no {old!r}"
        text = text.replace(old, new)
    return text


def option(text: str, name: str) -> str:
    """The value of an option of ``default-server``."""
    (value,) = re.findall(rf"^ *default-server .*\b{name} (\S+)", text, re.MULTILINE)
    return str(value)


def notice_s(text: str) -> float:
    """The longest time in seconds until HAProxy acts on an answer of the sidecar."""
    (answer,) = re.findall(r"^ *timeout check (\S+)", text, re.MULTILINE)
    if "agent-inter" in text:
        return durations.parse(option(text, "agent-inter")) + durations.parse(answer)
    return durations.parse(option(text, "inter")) * int(option(text, "fall")) + durations.parse(answer)


def status(proxy: Haproxy, name: str) -> str:
    """``UP``, ``DRAIN (agent)``, ``DOWN (agent)``, ..."""
    return proxy.show_servers()["app", name]["status"]


def weight(proxy: Haproxy, name: str) -> int:
    """The current weight of a server, of 100."""
    return int(proxy.show_servers()["app", name]["weight"])


def await_status(proxy: Haproxy, name: str, start: str) -> None:
    wait_for(lambda: status(proxy, name).startswith(start), timeout_s=60, what=f"{name} is {start}")


def await_agent(proxy: Haproxy, name: str, outcome: str) -> None:
    """Wait for this outcome of the last agent check, such as ``L7OK`` or ``L4CON`` (no connection)."""

    def is_so() -> bool:
        return proxy.show_servers()["app", name]["agent_status"] == outcome

    wait_for(is_so, timeout_s=60, what=f"the last agent check of {name} is {outcome}")


class _Server(ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


class FakeAgent:
    """An agent that answers HAProxy with ``line``, as long as the context lasts."""

    def __init__(self) -> None:
        self.line = "up ready 100%"
        self.port = free_port()

    def __enter__(self) -> Self:
        agent = self

        class Handler(StreamRequestHandler):
            def handle(self) -> None:
                self.wfile.write(f"{agent.line}\n".encode())

        self._server = _Server(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
