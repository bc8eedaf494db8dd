"""The child processes of a test, and the callables of the fixtures that start them."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import pytest

from harness.haproxy import Haproxy
from harness.redis_server import RedisServer
from harness.sidecar import Setting, Sidecar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.child import Child

C = TypeVar("C", bound="Child")


@contextmanager
def short_path(directory: Path) -> Iterator[Path]:
    """The directory under a path that is short enough for unix sockets (107 bytes)."""
    holder = Path(tempfile.mkdtemp(prefix="arbiter-", dir="/tmp"))
    link = holder / "run"
    link.symlink_to(directory)
    yield link
    shutil.rmtree(holder)  # pytest keeps the directory itself


class Children:
    """The child processes of a test, or of several, as a context that stops them."""

    def __init__(self) -> None:
        self._children: list[Child] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def adopt(self, child: C) -> C:
        """Stop this child at the end too; the child."""
        self._children.append(child)
        return child

    def stop(self) -> None:
        """Stop all children side by side."""
        for child in self._children:
            if child.alive:
                child.terminate()
                child.resume()
        for child in self._children:
            child.stop()

    def outputs(self) -> list[tuple[str, str]]:
        """The name and the end of the output of each child."""
        return [(child.name, child.shown()) for child in self._children]


CHILDREN: Final = pytest.StashKey[Children]()
"""Where the node of pytest (a test, a file, the session) has its children: a failure shows what they have written."""


@dataclass(frozen=True)
class StartRedis:
    """Starts redis-servers; options as ``RedisServer`` has them."""

    directory: Path
    children: Children

    def __call__(self, name: str = "redis", *args: str, **options: Any) -> RedisServer:
        return self.children.adopt(RedisServer(self.directory, name, **options)).start(*args)


@dataclass(frozen=True)
class SharedServers:
    """The redis-servers that the tests of one worker use one after another; each is started at its first use."""

    directory: Path
    children: Children
    _by_name: dict[str, RedisServer] = field(default_factory=dict, init=False)

    def redis(self, name: str, **options: Any) -> RedisServer:
        """The server of this name, as if it were new; options as ``RedisServer`` has them."""
        if name not in self._by_name:
            self._by_name[name] = self.children.adopt(RedisServer(self.directory, name, **options))
        self._by_name[name].renew()
        return self._by_name[name]


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
        """A sidecar that the test starts itself, with ``launch()`` or ``start()``."""
        return self.children.adopt(Sidecar(self.directory, name, **settings))

    def fleet(self, count: int, **settings: Setting) -> list[Sidecar]:
        """Start several with the same settings side by side; the instances are ``n00``, ``n01``, ..."""
        fleet = [self.unstarted(f"n{number:02d}", **settings) for number in range(count)]
        for sidecar in fleet:
            sidecar.launch()
        for sidecar in fleet:
            sidecar.ready(timeout_s=60 + 2 * count)
        return fleet
