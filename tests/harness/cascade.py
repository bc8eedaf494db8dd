"""The shipped cascade.cfg in a real HAProxy, in front of apps with fake agents or with real sidecars."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from harness.apps import FailingApp
from harness.http_request import request
from harness.ports import free_port, free_ports
from harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import ExitStack

    from harness.children import Children, StartHaproxy
    from harness.haproxy import Haproxy

SHIPPED: Final = Path(__file__).parents[2] / "deploy" / "haproxy" / "cascade.cfg"
EMPTY_STATE: Final = "1\n"
"""A server-state file without servers: only the version of its format."""
WELL: Final = "up ready 100%"
NAMES: Final = ("app1", "app2", "app3", "app4")


class Ports(NamedTuple):
    """The ports of a server: its app and its agent."""

    app: int
    agent: int


def config(servers: Mapping[str, Ports], *, front: int, metrics: int, state: Path) -> str:
    """The shipped text with these servers, our ports and paths, and ten times shorter intervals.

    ``state`` is created if it does not exist. ``Haproxy`` adds an admin socket.
    """
    if not state.exists():
        state.write_text(EMPTY_STATE)
    text = re.sub(r"(?m)^ +(server app|stats socket ).*\n", "", SHIPPED.read_text())
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


def weights(proxy: Haproxy) -> dict[str, int]:
    """The current weight of each server, of 100."""
    return {name: int(row["weight"]) for (backend, name), row in proxy.show_servers().items() if backend == "app"}


def status(proxy: Haproxy, name: str) -> str:
    """``UP``, ``DRAIN (agent)``, ``DOWN (agent)``, ..."""
    return proxy.show_servers()["app", name]["status"]


def await_status(proxy: Haproxy, name: str, start: str, timeout_s: float = 60) -> None:
    wait_for(lambda: status(proxy, name).startswith(start), timeout_s=timeout_s, what=f"{name} is {start}")


def await_agent(proxy: Haproxy, name: str, outcome: str, timeout_s: float = 60) -> None:
    """Wait for this outcome of the last agent check, such as ``L7OK`` or ``L4CON`` (no connection)."""

    def is_so() -> bool:
        return proxy.show_servers()["app", name]["agent_status"] == outcome

    wait_for(is_so, timeout_s=timeout_s, what=f"the last agent check of {name} is {outcome}")


def await_weight(proxy: Haproxy, name: str, least: int, most: int, timeout_s: float = 60) -> None:
    what = f"the weight of {name} is within {least} to {most}"
    wait_for(lambda: least <= weights(proxy)[name] <= most, timeout_s=timeout_s, what=what)


# -- fake agents ------------------------------------------------------------------------------------------------------


class _Server(ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


class FakeAgent:
    """An agent that answers HAProxy with ``line``, as long as the context lasts."""

    def __init__(self, line: str = WELL) -> None:
        self.line = line
        self.port = free_port()  # it may stop, and listen there again
        self._server: _Server | None = None

    def __enter__(self) -> Self:
        agent = self

        class Handler(StreamRequestHandler):
            def handle(self) -> None:
                self.wfile.write(f"{agent.line}\n".encode())

        self._server = _Server(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop listening; a second call does nothing."""
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def revive(self) -> None:
        """Listen at the same port again, and answer ``WELL``."""
        self.line = WELL
        self.__enter__()


@dataclass
class FakeAgentSite:
    """Failing apps, fake agents and HAProxy in front of them."""

    directory: Path
    children: Children
    haproxy: StartHaproxy
    stack: ExitStack
    apps: dict[str, FailingApp] = field(default_factory=dict)
    agents: dict[str, FakeAgent] = field(default_factory=dict)
    front: int = 0
    metrics: int = 0

    def open(self, count: int, change: Callable[[str], str] = str) -> Haproxy:
        """Start ``count`` apps, and HAProxy with the shipped file as ``change`` returns it."""
        for name in NAMES[:count]:
            self.agents[name] = self.stack.enter_context(FakeAgent())
            self.apps[name] = self.children.adopt(FailingApp(self.directory, name)).start()
        self.front, self.metrics = free_ports(2)
        proxy = self.haproxy(change(self.config()))
        for name in self.apps:
            await_agent(proxy, name, "L7OK")
        return proxy

    def config(self, state: str = "server-state") -> str:
        servers = {name: Ports(app.port, self.agents[name].port) for name, app in self.apps.items()}
        return config(servers, front=self.front, metrics=self.metrics, state=self.directory / state)

    def served(self) -> dict[str, int]:
        """The number of requests of each app."""
        return {name: app.served() for name, app in self.apps.items()}

    def ask(self, method: str) -> int:
        """The status of one request through HAProxy."""
        return request(self.front, "/work", method)[0]
