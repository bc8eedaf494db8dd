"""What the fixtures hand out: callables that start a child and remember it until the test is over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from harness.haproxy import Haproxy
from harness.redis_server import RedisServer
from harness.sidecar import Setting, Sidecar

if TYPE_CHECKING:
    from pathlib import Path

    from harness.child import Child

C = TypeVar("C", bound="Child")


class Children:
    """Every child of one test."""

    def __init__(self) -> None:
        self._children: list[Child] = []

    def adopt(self, child: C) -> C:
        """Remember the child; it is returned."""
        self._children.append(child)
        return child

    def stop(self) -> None:
        """Tell all of them, then wait for each: they end side by side."""
        for child in self._children:
            if child.alive:
                child.terminate()
                child.resume()
        for child in self._children:
            child.stop()

    def outputs(self) -> list[tuple[str, str]]:
        """Name and output's end of each."""
        return [(child.name, child.shown()) for child in self._children]


@dataclass(frozen=True)
class StartRedis:
    """Starts redis-servers; options as ``RedisServer`` has them."""

    directory: Path
    children: Children

    def __call__(self, name: str = "redis", *args: str, **options: Any) -> RedisServer:
        return self.children.adopt(RedisServer(self.directory, name, **options)).start(*args)


@dataclass(frozen=True)
class StartHaproxy:
    """Starts HAProxies, each on the configuration given as text."""

    directory: Path
    children: Children

    def __call__(self, config_text: str, name: str = "haproxy") -> Haproxy:
        return self.children.adopt(Haproxy(self.directory, config_text, name)).start()


@dataclass(frozen=True)
class StartSidecar:
    """Starts sidecars; the name is the instance, and the settings are those of the daemon in lower case."""

    directory: Path
    children: Children

    def __call__(self, name: str = "a", **settings: Setting) -> Sidecar:
        return self.unstarted(name, **settings).start()

    def unstarted(self, name: str = "a", **settings: Setting) -> Sidecar:
        """One that the test starts itself, with ``launch()`` or ``start()``."""
        return self.children.adopt(Sidecar(self.directory, name, **settings))

    def fleet(self, count: int, **settings: Setting) -> list[Sidecar]:
        """Several with the same settings, started side by side; the instances are ``n00``, ``n01``, ..."""
        fleet = [self.unstarted(f"n{number:02d}", **settings) for number in range(count)]
        for sidecar in fleet:
            sidecar.launch()
        for sidecar in fleet:
            sidecar.ready(timeout_s=20 + 2 * count)
        return fleet
