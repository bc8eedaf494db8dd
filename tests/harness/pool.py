"""Many real sidecars in a few processes: a fleet of thirty starts in seconds, and its parts are those of the daemon.

``python -m harness.pool FILE`` serves every sidecar of the file. Its log has the instance of each line.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import disable_created_metrics

from harness.child import Child, NotReadyError
from sidecar.app import budget_parts, daemon
from sidecar.config import rollout
from sidecar.config.settings import load
from sidecar.telemetry.log import logging_to
from sidecar.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.sidecar import Setting, Sidecar
    from harness.starting import Children, StartSidecar

_PLACES: Final = tuple(Path(__file__).parents[up] for up in (1, 2))
_instance: ContextVar[str] = ContextVar("instance", default="")


class Host(Child):
    """One process that serves these sidecars."""

    def __init__(self, directory: Path, name: str, sidecars: Sequence[Sidecar]) -> None:
        super().__init__(name, directory)
        self._sidecars = sidecars
        self._waits_for = list(sidecars)
        self._file = directory / f"{name}.json"

    def launch(self) -> None:
        self._waits_for = list(self._sidecars)
        super().launch()

    def ready_anywhere(self) -> None:
        """Return once it does its work, at other ports if another process was quicker to take one."""
        try:
            self.ready(timeout_s=60)
        except NotReadyError as error:
            if "already in use" not in str(error):
                raise
            self.start()

    def lines(self) -> list[dict[str, Any]]:
        """The complete lines of its log."""
        complete, _, _ = self.output().rpartition("\n")
        return [json.loads(line) for line in complete.splitlines() if line.startswith("{")]

    def _choose_place(self) -> None:
        for one in self._sidecars:
            one.choose_place()
            load({}, one.environ())  # what is wrong with them is told here
        self._file.write_text(json.dumps([one.environ() for one in self._sidecars]))

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "harness.pool", str(self._file)]

    def _env(self) -> dict[str, str]:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("ARBITER_", "NOMAD_"))}
        path = os.pathsep.join((*map(str, _PLACES), *filter(None, (inherited.get("PYTHONPATH"),))))
        return {**inherited, "PYTHONPATH": path}

    def _is_ready(self) -> bool:
        while self._waits_for:
            if self._waits_for[-1].health("/livez")[0] != 200:
                return False
            self._waits_for.pop()
        return True


class Pool:
    """Starts fleets, each spread over all of ``hosts`` processes."""

    def __init__(self, sidecar: StartSidecar, children: Children, hosts: int = 2) -> None:
        self._sidecar = sidecar
        self._children = children
        self._number = hosts
        self.hosts: list[Host] = []

    def fleet(self, count: int, **settings: Setting) -> list[Sidecar]:
        """So many sidecars with the same settings; the instances are ``n00``, ``n01``, ..."""
        (fleet,) = self.fleets((count, settings))
        return fleet

    def fleets(self, *wanted: tuple[int, Mapping[str, Setting]], names: str = "") -> list[list[Sidecar]]:
        """Several fleets at once, each with its own settings; ``names``: a letter for each, else they go by service."""
        firsts = names or [str(settings.get("service", "n")) for _, settings in wanted]
        fleets = [
            [self._sidecar.unstarted(f"{first}{at:02d}", **settings) for at in range(count)]
            for first, (count, settings) in zip(firsts, wanted, strict=True)
        ]
        self._start([one for fleet in fleets for one in fleet])
        return fleets

    def again(self, fleet: Sequence[Sidecar], **settings: Setting) -> list[Sidecar]:
        """Start sidecars of a pool that has ended, with other settings; they remember what they did."""
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
            host.ready_anywhere()
        self.hosts += hosts

    def lines(self, **fields: object) -> list[dict[str, Any]]:
        """Lines of all logs that have these fields, in the order of their times."""
        lines = [line for host in self.hosts for line in host.lines()]
        found = [line for line in lines if all(line.get(name) == value for name, value in fields.items())]
        return sorted(found, key=lambda line: str(line["time"]))


# -- the process ------------------------------------------------------------------------------------------------------


def main(file: str) -> None:
    """Serve all of them until a signal comes."""
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
    settings = rollout.effective(load({}, environ))
    _instance.set(settings.instance)
    await daemon.serve(
        settings, Metrics(settings.mode, settings.error_limit, budget_parts.known_capacity(settings)), stop
    )


def _with_instance(record: logging.LogRecord) -> bool:
    record.fields = {"instance": _instance.get(), **getattr(record, "fields", {})}
    return True


if __name__ == "__main__":
    main(sys.argv[1])
