"""The daemon in the loop of a test, and a composed sidecar as facts: which value stands in which attribute.

A test compares facts, so it needs to know neither where a part hangs nor who holds it. The functions that a part was
given are looked into as well: their bound arguments and what they close over.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from inspect import getcoroutinelocals
from pathlib import Path, PurePath
from types import FunctionType, MethodType
from typing import Any, Final

import pytest

from harness.raw_http import Answer, RawConnection
from harness.waiting import eventually
from sidecar.app import build as build_module
from sidecar.app import daemon
from sidecar.app.build import Sidecar, build, metrics_of
from sidecar.app.build_servers import Listeners, listening
from sidecar.app.run_lock import RunLock
from sidecar.config.load import load
from sidecar.config.settings import Config
from sidecar.core.types import State

Facts = dict[str, frozenset[str]]
"""The values by ``Class.attribute``; the objects of one class share their keys."""

WORD: Final = "a word of sixteen letters or more"
_PLAIN: Final = (str, bytes, bool, int, float, type(None), Enum, PurePath)
_MANY: Final = (list, tuple, set, frozenset, deque)
_CONFIG: Final = "sidecar.config.settings"
EVERY_PART: Final = {
    "alone": "true",
    "instance": "a",
    "action": "command",
    "action_command": "true",
    "app_port": "9",
    "scrape_url": "http://127.0.0.1:9/m",
    "scrape_errors": "e",
    "statsd_listen": "127.0.0.1:8125",
    "page_listen": "127.0.0.1:4",
    "token_file": "{files}/token",
    "webhook_url": "http://a/h",
    "cull_hook": "{files}/hook",
    "state_dir": "{files}",
}
"""The settings of a sidecar without Redis and TLS in which every other part is configured; ``{files}`` is a directory
of the test, with a token and a hook.
"""

_PORTS: Final = {f"{name}_listen": f"127.0.0.1:{port}" for port, name in enumerate(("public", "local", "agent"), 1)}


@dataclass
class Composed:
    """The parts of one sidecar, its open listeners, and the coroutines that the daemon would run, with their names."""

    sidecar: Sidecar
    listeners: Listeners
    works: list[tuple[str, Coroutine[None, None, None]]]

    async def ask(self, listener: str, request: str, **headers: str) -> Answer:
        """Ask ``GET /path`` and the like at the listener of this name."""
        (asked,) = (each for each in self.listeners.http if each.name == listener)
        lines = [
            f"{request} HTTP/1.1",
            *(f"{name}: {value}" for name, value in ({"Host": "127.0.0.1"} | headers).items()),
        ]
        async with await RawConnection.to(asked) as connection:
            return await connection.ask("\r\n".join([*lines, "", ""]).encode())

    def metrics(self) -> Facts:
        """Every sample of the metrics page."""
        samples = (line.rpartition(" ") for line in self.sidecar.metrics.page()[0].decode().splitlines())
        return {f"/metrics {name}": frozenset({value}) for name, _, value in samples if not name.startswith("#")}

    def _addresses(self) -> dict[str, list[str]]:
        datagrams = self.listeners.datagrams
        return {
            **{listener.name: listener.addresses for listener in self.listeners.http},
            "agent": self.listeners.agent.addresses if self.listeners.agent else [],
            "datagrams": datagrams.addresses if datagrams else [],
        }

    def facts(self) -> Facts:
        """Every fact about the parts, the listeners and the works."""
        walk = _Walk()
        walk.look("Sidecar", self.sidecar)
        walk.look("Listeners", self.listeners)
        for name, work in self.works:
            walk.look(f"work {name}", getcoroutinelocals(work))
        for name, addresses in self._addresses().items():
            walk.look(f"hosts of {name}", [address.rpartition(":")[0] or address for address in addresses])
        return {key: frozenset(values) for key, values in walk.facts.items()}


def on_any_port(flags: Mapping[str, str]) -> Config:
    """The configuration of these flags, whose listeners take any free port of their hosts."""

    def any_port(address: str) -> str:
        return f"{address.rpartition(':')[0]}:0" if ":" in address else address

    config = load({**_PORTS, **flags}, {})
    server: dict[str, Any] = {name: any_port(getattr(config.server, name)) for name in (*_PORTS, "page_listen")}
    statsd = config.statsd._replace(statsd_listen=any_port(config.statsd.statsd_listen))
    return config._replace(server=config.server._replace(**server), statsd=statsd)


def with_every_part(files: Path, **more: str) -> Config:
    """The configuration ``EVERY_PART`` on any port; its files are made in this directory."""
    for name in ("token", "hook"):
        (files / name).write_text(f"{WORD}\n")
        (files / name).chmod(0o700)
    return on_any_port({name: value.format(files=files) for name, value in {**EVERY_PART, **more}.items()})


@asynccontextmanager
async def composed(config: Config) -> AsyncIterator[Composed]:
    """The sidecar of this configuration as the daemon composes it; none of its works has begun."""
    sidecar = await build(config, metrics_of(config))
    async with AsyncExitStack() as opened:
        listeners = await opened.enter_async_context(listening(sidecar))
        works = [(getattr(work, "__qualname__", ""), work) for work in (*daemon._works(sidecar), *listeners.works())]
        opened.callback(lambda: [work.close() for _, work in works])
        opened.push_async_callback(sidecar.budget.aclose)
        yield Composed(sidecar, listeners, works)


@dataclass
class _Walk:
    """Visits every object of the project once, and what stands in it."""

    facts: dict[str, set[str]] = field(default_factory=dict)
    _visited: dict[int, Any] = field(default_factory=dict)

    def look(self, key: str, value: Any) -> None:
        """Note what ``value`` is, under ``key``, and look into it if it is new."""
        if isinstance(value, _PLAIN):
            self._note(key, str(value))
        elif isinstance(value, partial):
            self.look(key, value.func)
            self.look(f"{key}()", (*value.args, value.keywords))
        elif isinstance(value, Mapping):
            for name, each in value.items():
                text = name.decode() if isinstance(name, bytes) else name
                self.look(f"{key}[{text}]" if isinstance(text, str) else key, each)
        elif isinstance(value, _MANY) and not hasattr(value, "_fields"):
            for each in value:
                self.look(key, each)
        else:
            self._note(key, getattr(value, "__qualname__", type(value).__qualname__))
            if id(value) not in self._visited or isinstance(value, MethodType):
                self._visited[id(value)] = value  # kept, so that no other object gets its id
                self._look_into(value)

    def _look_into(self, value: Any) -> None:
        if isinstance(value, MethodType):
            self.look(f"{type(value.__self__).__name__}", value.__self__)
        elif isinstance(value, FunctionType):
            for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
                self.look(f"{value.__qualname__}:{name}", cell.cell_contents)
        elif hasattr(value, "_fields") or _is_ours(value):
            self._look_at_attributes(value)

    def _look_at_attributes(self, value: Any) -> None:
        if type(value).__module__ == _CONFIG:
            return  # what was set is no proof that anybody reads it
        name = type(value).__name__ + (f"({value.name})" if isinstance(getattr(value, "name", None), str) else "")
        for attribute, each in _attributes(value):
            self.look(f"{name}.{attribute.lstrip('_')}", each)

    def _note(self, key: str, text: str) -> None:
        self.facts.setdefault(key, set()).add(text)


def _is_ours(value: Any) -> bool:
    return type(value).__module__.startswith("sidecar.") and not isinstance(value, type)


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(value, "_fields"):
        yield from zip(value._fields, value, strict=True)
        return
    names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()) if name != "__dict__"]
    for name in [*names, *vars(value)] if hasattr(value, "__dict__") else names:
        if hasattr(value, name):
            yield name, getattr(value, name)


FAST: Final = {"alone": "true", "service": "shop", "instance": "a", "settle": "0s", "drain": "0s", "stop_drain": "0s"}
POLLS: Final = ("/health", "/health/haproxy", "/health/nomad")


class Serving:
    """A daemon that serves in this loop. ``ended`` has its exit code."""

    def __init__(
        self, sidecar: Sidecar, ended: asyncio.Task[int], stop: asyncio.Event, addresses: Mapping[str, str]
    ) -> None:
        self.sidecar = sidecar
        self.ended = ended
        self.stop = stop
        self.addresses = addresses

    @property
    def state(self) -> State:
        return self.sidecar.snapshot().container.state

    async def ask(self, listener: str, line: str, body: str = "") -> Answer:
        """Ask the listener whose address the log calls ``listener``."""
        host, _, port = self.addresses[listener].rpartition(":")
        head = f"{line} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
        async with RawConnection(*await asyncio.open_connection(host, int(port))) as connection:
            return await connection.ask((head + body).encode())

    async def report(self, **fields: object) -> Answer:
        """Report errors, by default five: as many as make an app unhealthy."""
        return await self.ask("errors_to", "POST /errors", json.dumps({"count": 5, "kind": "redis"} | fields))

    async def polls(self) -> list[int]:
        """The status of each health answer."""
        return [(await self.ask("health_at", f"GET {path}")).status for path in POLLS]

    async def becomes(self, state: State) -> None:
        """Wait until the container is in this state."""
        await eventually(lambda: self.state is state, timeout_s=60, what=f"the container is {state}")

    async def cull(self) -> None:
        """Report errors until the container is down."""
        assert (await self.report()).status == 202
        await self.becomes(State.DOWN)

    def metrics(self) -> str:
        """The metrics page."""
        return self.sidecar.metrics.page()[0].decode()


@asynccontextmanager
async def serving(
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    lock: RunLock | None = None,
    **flags: str,
) -> AsyncIterator[Serving]:
    """Serve with these settings until the end of the context, or until the test sets ``stop``."""
    built: list[Sidecar] = []
    thresholds = gc.get_threshold()

    async def build(*args: Any, **options: Any) -> Sidecar:
        built.append(await build_module.build(*args, **options))
        return built[-1]

    def lines() -> list[Any]:
        return [record for record in caplog.records if record.message == "listening"]

    monkeypatch.setattr(daemon, "build", build)
    caplog.set_level(logging.INFO)
    caplog.clear()
    config = on_any_port({**FAST, **flags})
    stop = asyncio.Event()
    ended = asyncio.create_task(daemon.serve(config, metrics_of(config), stop, lock))
    try:
        await eventually(lambda: lines() or ended.done(), timeout_s=60, what="it listens")
        if not lines():
            await ended
        yield Serving(built[0], ended, stop, lines()[0].__dict__["fields"])
    finally:
        ended.cancel()
        with suppress(asyncio.CancelledError, ExceptionGroup):
            await ended
        gc.unfreeze()
        gc.set_threshold(*thresholds)
