"""Apps that fail as told and agents that say what they are told, behind a real HAProxy with the shipped cascade."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cascade import Ports, config
from harness.failing_app import FailingApp
from harness.ports import free_ports
from harness.steered_agent import SteeredAgent
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.haproxy import Haproxy
    from harness.starting import Children, StartHaproxy


@dataclass
class SteeredSite:
    """Apps that fail as told, agents that say what they are told, and HAProxy before them."""

    directory: Path
    children: Children
    haproxy: StartHaproxy
    lives: ExitStack
    apps: dict[str, FailingApp] = field(default_factory=dict)
    agents: dict[str, SteeredAgent] = field(default_factory=dict)
    front: int = 0
    metrics: int = 0

    def open(self, count: int, change: Callable[[str], str] = str) -> Haproxy:
        """Start ``count`` apps and HAProxy with the shipped file, changed further by the test."""
        for number in range(1, count + 1):
            name = f"app{number}"
            self.agents[name] = self.lives.enter_context(SteeredAgent())
            self.apps[name] = self.children.adopt(FailingApp(self.directory, name)).start()
        self.front, self.metrics = free_ports(2)
        proxy = self.haproxy(change(self.config()))
        for name in self.apps:
            wait_for(
                lambda name=name: proxy.show_servers()["app", name]["agent_status"] == "L7OK",  # type: ignore[misc] # a default binds the name
                timeout_s=30,
                what=f"the agent of {name} was heard",
            )
        return proxy

    def config(self, state: str = "server-state") -> str:
        servers = {name: Ports(app.port, self.agents[name].port) for name, app in self.apps.items()}
        return config(servers, front=self.front, metrics=self.metrics, state=self.directory / state)

    def served(self) -> dict[str, int]:
        """How many requests each app has seen."""
        return {name: app.served() for name, app in self.apps.items()}

    def ask(self, method: str, timeout_s: float = 5) -> tuple[int, float]:
        """One request through HAProxy: its status, and after how many seconds."""
        connection = http.client.HTTPConnection("127.0.0.1", self.front, timeout=timeout_s)
        asked_at = time.monotonic()
        try:
            connection.request(method, "/work")
            return connection.getresponse().status, time.monotonic() - asked_at
        finally:
            connection.close()
