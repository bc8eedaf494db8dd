"""A whole site: apps that fail as told, a real sidecar beside each, and HAProxy with the shipped cascade."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from harness.cascade import Ports, await_status, config
from harness.failing_app import FailingApp, shares
from harness.haproxy import Haproxy
from harness.ports import free_ports
from harness.sidecar import Setting, Sidecar
from harness.traffic import Traffic

if TYPE_CHECKING:
    from harness.starting import Children

NAMES = ("app1", "app2", "app3", "app4")


@dataclass
class Shop:
    """Four apps under constant load. ``settings`` are those of every sidecar."""

    directory: Path
    children: Children
    settings: dict[str, Setting]
    apps: dict[str, FailingApp] = field(default_factory=dict)
    sidecars: dict[str, Sidecar] = field(default_factory=dict)

    def open(self, rate: float = 300) -> Self:
        """Start everything but the load, which begins when the context of ``traffic`` is entered."""
        for name in NAMES:
            self.sidecars[name] = self.children.adopt(Sidecar(self.directory, name, **self.settings))
            self.sidecars[name].launch()
        for name, sidecar in self.sidecars.items():
            sidecar.ready()
            app = FailingApp(self.directory, name, sidecar.address("local")[1])
            self.apps[name] = self.children.adopt(app)
            app.launch()
        servers = {name: Ports(app.port, self.sidecars[name].address("agent")[1]) for name, app in self.apps.items()}
        front, metrics = free_ports(2)
        text = config(servers, front=front, metrics=metrics, state=self.directory / "server-state")
        for app in self.apps.values():
            app.ready()
        self.proxy = self.children.adopt(Haproxy(self.directory, text)).start()
        for name in NAMES:
            await_status(self.proxy, name, "UP")
        self.traffic = Traffic(front, rate)
        return self

    def fail(self, *shares: float) -> None:
        """Let these shares of each app's requests fail from now on."""
        for app, share in zip(self.apps.values(), shares, strict=True):
            app.fail(share)

    def shares(self, answers: int) -> dict[str, float]:
        """The share of each app in what HAProxy sends while so many answers come back, retries included."""
        before = self._served()
        self.traffic.next_answers(answers)
        return shares(before, self._served())

    def _served(self) -> dict[str, int]:
        return {name: app.served() for name, app in self.apps.items()}

    def replace(self, name: str) -> None:
        """Do what a scheduler does: a new app, which is well, with a sidecar that remembers nothing."""
        app, sidecar = self.apps[name], self.sidecars[name]
        app.stop()
        sidecar.stop()
        state = self.directory / f"{name}.{sidecar.pid}.state"
        state.mkdir()
        sidecar.settings |= {"state_dir": state, "instance": f"{name}-{sidecar.pid}"}
        sidecar.start()
        app.start()
