"""Many real sidecars in a few processes, so that a fleet of thirty starts in seconds.

``python -m harness.sidecar_pool FILE`` runs every sidecar of the file. Each line of its log has the instance.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_client import disable_created_metrics

from harness.child import Child, python_env
from sidecar.app import build, daemon
from sidecar.config.load import load
from sidecar.telemetry.log_output import logging_to

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.children import Children, StartSidecar
    from harness.sidecar import Setting, Sidecar

_instance: ContextVar[str] = ContextVar("instance", default="")


class Host(Child):
    """One process that runs these sidecars."""

    def __init__(self, directory: Path, name: str, sidecars: Sequence[Sidecar]) -> None:
        super().__init__(name, directory)
        self._sidecars = sidecars
        self._waits_for: list[Sidecar] = []
        self._file = directory / f"{name}.json"

    def launch(self) -> None:
        for one in self._sidecars:
            load({}, one.environ())  # wrong settings fail here, and not in the other process
        self._waits_for = list(self._sidecars)
        self._file.write_text(json.dumps([one.environ() for one in self._sidecars]))
        super().launch()

    def lines(self) -> list[dict[str, Any]]:
        """The complete lines of its log."""
        complete, _, _ = self.output().rpartition("\n")
        return [json.loads(line) for line in complete.splitlines() if line.startswith("{")]

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "harness.sidecar_pool", str(self._file)]

    def _env(self) -> dict[str, str]:
        return python_env()

    def _is_ready(self) -> bool:
        while self._waits_for:
            if self._waits_for[-1].health("/livez")[0] != 200:
                return False
            self._waits_for.pop()
        return True


class SidecarPool:
    """Starts fleets, each distributed over ``hosts`` processes."""

    def __init__(self, sidecar: StartSidecar, children: Children, hosts: int = 2) -> None:
        self._sidecar = sidecar
        self._children = children
        self._number = hosts
        self.hosts: list[Host] = []

    def fleet(self, count: int, **settings: Setting) -> list[Sidecar]:
        """Start ``count`` sidecars with the same settings; the instances are ``n00``, ``n01``, ..."""
        (fleet,) = self.fleets((count, settings))
        return fleet

    def fleets(self, *sizes: tuple[int, Mapping[str, Setting]], names: str = "") -> list[list[Sidecar]]:
        """Start several fleets, each with its own settings; ``names``: the first letter of each (else the service)."""
        firsts = names or [str(settings.get("service", "n")) for _, settings in sizes]
        fleets = [
            [self._sidecar.unstarted(f"{first}{at:02d}", **settings) for at in range(count)]
            for first, (count, settings) in zip(firsts, sizes, strict=True)
        ]
        self._start([one for fleet in fleets for one in fleet])
        return fleets

    def again(self, fleet: Sequence[Sidecar], **settings: Setting) -> list[Sidecar]:
        """Start the sidecars of a stopped pool with other settings and their former state."""
        for one in fleet:
            one.settings |= settings
        self._start(list(fleet))
        return list(fleet)

    def _start(self, every: list[Sidecar]) -> None:
        parts = [part for at in range(self._number) if (part := every[at :: self._number])]
        hosts = [Host(part[0].directory, f"host-of-{part[0].settings['instance']}", part) for part in parts]
        for host in hosts:
            self._children.adopt(host).launch()
        for host in hosts:
            host.ready()
        self.hosts += hosts

    def cull_times(self, prefix: str = "") -> list[float]:
        """The Unix seconds of all culls of instances with this prefix, in order."""
        lines = (line for line in self.lines(claim="granted") if line["instance"].startswith(prefix))
        return [datetime.fromisoformat(line["time"]).timestamp() for line in lines]

    def lines(self, **fields: object) -> list[dict[str, Any]]:
        """The lines of all logs that have these fields, in the order of time."""
        lines = [line for host in self.hosts for line in host.lines()]
        found = [line for line in lines if all(line.get(name) == value for name, value in fields.items())]
        return sorted(found, key=lambda line: str(line["time"]))


# -- the process ------------------------------------------------------------------------------------------------------


def main(file: str) -> None:
    """Run the sidecars until SIGTERM or SIGINT."""
    environs: list[dict[str, str]] = json.loads(Path(file).read_text())
    disable_created_metrics()  # type: ignore[no-untyped-call]
    with logging_to(sys.stderr, style="json", level="info", common={}, on_drop=lambda: None):
        logging.getLogger().handlers[0].addFilter(_with_instance)
        asyncio.run(_serve(environs))


async def _serve(environs: Sequence[Mapping[str, str]]) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with asyncio.TaskGroup() as tasks:
        for environ in environs:
            tasks.create_task(_serve_one(environ, stop))


async def _serve_one(environ: Mapping[str, str], stop: asyncio.Event) -> None:
    settings = load({}, environ)
    _instance.set(settings.identity.instance)
    await daemon.serve(settings, build.metrics_of(settings), stop)


def _with_instance(record: logging.LogRecord) -> bool:
    record.fields = {"instance": _instance.get(), **getattr(record, "fields", {})}
    return True


if __name__ == "__main__":
    main(sys.argv[1])
