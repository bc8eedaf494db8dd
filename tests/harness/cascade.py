"""The shipped cascade.cfg in a real HAProxy, in front of apps with fake agents or with real sidecars."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from harness.ports import free_port
from harness.waiting import wait_for
from sidecar.runlock import durations

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.haproxy import Haproxy

HAPROXY: Final = Path(__file__).parents[2] / "deploy" / "haproxy"
EMPTY_STATE: Final = "1\n"
"""A server-state file without servers: only the version of its format."""


class Ports(NamedTuple):
    """The ports of a server: its app and its agent."""

    app: int
    agent: int


def config(servers: Mapping[str, Ports], *, front: int, metrics: int, state: Path) -> str:
    """The shipped text with these servers, our ports and paths, and ten times shorter intervals.

    ``Haproxy`` adds an admin socket.
    """
    state.write_text(EMPTY_STATE)
    text = re.sub(r"(?m)^ +(server app|stats socket ).*\n", "", (HAPROXY / "cascade.cfg").read_text())
    for old, new in (
        ("bind :8000", f"bind 127.0.0.1:{front}\n    http-request set-log-level silent"),
        ("bind :8405", f"bind 127.0.0.1:{metrics}"),
        ("/var/lib/haproxy/server-state", str(state)),
        ("agent-port 9182 ", ""),
        ("inter 2s", "inter 200ms"),
        ("slowstart 20s", "slowstart 2s"),
    ):
        assert old in text, f"cascade.cfg has no {old!r}"
        text = text.replace(old, new)
    return text + "".join(
        f"    server {name} 127.0.0.1:{ports.app} agent-port {ports.agent}\n" for name, ports in servers.items()
    )


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
