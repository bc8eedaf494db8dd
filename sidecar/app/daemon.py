"""Runs what ``build`` has built: signals, the run lock, and one task group from start to stop."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from prometheus_client import disable_created_metrics

from sidecar.app import lean_import
from sidecar.app.build import DISK_S, Sidecar, build, metrics_of
from sidecar.app.build_listeners import listening
from sidecar.app.late_imports import import_late
from sidecar.config import secret_files
from sidecar.core.life.events import StopRequested
from sidecar.core.types import State
from sidecar.net.event_loop import new_loop
from sidecar.net.sockets import CannotListenError
from sidecar.net.threads import DaemonThreads, in_thread
from sidecar.telemetry.log import logger, logging_to

if TYPE_CHECKING:
    import socket

    from sidecar.app.early_health import EarlyHealth
    from sidecar.config.slices import Config
    from sidecar.server.listeners import Listeners
    from sidecar.takeover.election import Takeover
    from sidecar.telemetry.metrics import Metrics
    from sidecar.telemetry.observers import Observers

EXIT_USAGE: Final = 2

GC_THRESHOLDS: Final = (700, 4, 4)
"""Collections that come earlier than by default (700, 10, 10) each hold the loop for a shorter time: below 5 ms while
many connections are cut, not 12 ms."""


def main(config: Config, early_health: EarlyHealth | None = None) -> int:
    """Run one sidecar until a signal stops it, and return the exit code.

    It is 0, that of the action ``exit``, or 2 if the sidecar cannot listen at an address. With a run lock there may be
    nothing to do, because other sidecars run already. ``early_health`` answers polls until the listeners are open.
    """
    # A timestamp beside every counter would double the page, and nothing reads it.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    if config.scrape.scrape_url or config.notify.has_receivers:
        lean_import.import_client()
    metrics = metrics_of(config)
    with logging_to(
        sys.stderr,
        style=config.log.log_format,
        level=config.log.log_level,
        common={"service": config.identity.service, "instance": config.identity.instance},
        on_drop=metrics.log_dropped,
    ):
        try:
            if config.run_lock.run_lock:
                from sidecar.app import build_takeover  # noqa: PLC0415 - 20 ms, and few have a run lock

                return build_takeover.election(config).run(lambda takeover: _in_loop(_run(config, metrics, takeover)))
            return _in_loop(_run(config, metrics, early_health=early_health))
        except CannotListenError as error:
            sys.stderr.write(f"health-arbiter: {error}\n")
            return EXIT_USAGE


def _in_loop(work: Coroutine[None, None, int]) -> int:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(work)


async def _run(
    config: Config, metrics: Metrics, takeover: Takeover | None = None, early_health: EarlyHealth | None = None
) -> int:
    stop = asyncio.Event()

    def request_stop() -> None:
        if stop.is_set():
            os._exit(1)  # the second signal ends the process at once, even if a part hangs
        stop.set()

    loop = asyncio.get_running_loop()
    loop.set_default_executor(DaemonThreads())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, request_stop)
    return await serve(config, metrics, stop, takeover, early_health)


async def serve(
    config: Config,
    metrics: Metrics,
    stop: asyncio.Event,
    takeover: Takeover | None = None,
    early_health: EarlyHealth | None = None,
) -> int:
    """Serve until ``stop`` is set: then health is down for ``stop_drain`` seconds, and the sidecar ends.

    With a standby that is ready, hand over to it instead. ``takeover``: the run lock, and the sockets and the state of
    the previous main. The first exception of a part stops all parts, and is raised. The exit code is 0, or that of the
    action ``exit``.
    """
    sidecar = await build(config, metrics, takeover, leave=stop.set)
    _observe_loop(sidecar.observers)
    waiting: list[socket.socket] = []
    if early_health is not None:
        sockets, waiting = early_health.stop()
        if sockets:
            sidecar = sidecar._replace(inherited={"public_listen": sockets})
    async with listening(sidecar) as listeners:
        for connection in waiting:
            await listeners.public.adopt_connection(connection)
        works = [*_works(sidecar), *listeners.works()]
        if sidecar.main_process is not None:
            works.append(sidecar.main_process.begin(listeners, sidecar.journal))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
            _freeze_garbage(is_successor=takeover is not None and takeover.is_successor)
            is_handed_over = await _stopped(sidecar, listeners, stop)
            for task in tasks:
                task.cancel()
    if sidecar.main_process is not None:
        sidecar.main_process.close()
    if not is_handed_over:
        await sidecar.membership.beat()  # the last beat reports the end of the container
    await sidecar.ledger.finish()
    await sidecar.budget.aclose()
    logger.info("stopped")
    if sidecar.actuator is not None and sidecar.actuator.has_left:
        if not sidecar.controller.ids.is_recognisable:
            await sidecar.journal.forget()  # what starts next is another incarnation
        return config.action.exit_code
    return 0


def _works(sidecar: Sidecar) -> Iterator[Coroutine[None, None, None]]:
    yield sidecar.controller.run()
    yield sidecar.membership.run()
    yield sidecar.ledger.run()
    yield sidecar.error_histogram.run()
    yield sidecar.error_sharing.run()
    yield import_late()
    config = sidecar.config
    if secret_files.paths(config):
        yield _warn_of_open_secrets(config)
    if sidecar.actuator is not None:
        yield sidecar.actuator.run(lambda: sidecar.snapshot().container)
    if sidecar.app_port is not None:
        yield sidecar.app_port.run()
    if config.scrape.scrape_url:
        from sidecar.app.build_scraper import scraper  # noqa: PLC0415 - 15 ms, and few scrape

        offer = sidecar.report_tap.tapped("scrape", sidecar.offer)
        yield scraper(config.scrape, config.judging.error_window, offer, sidecar.observers).run()
    if config.notify.has_receivers:
        from sidecar.app.build_notify import messenger  # noqa: PLC0415 - 14 ms, and few send messages

        yield messenger(
            config,
            sidecar.budget,
            sidecar.observers,
            sidecar.metrics.registry,
            sidecar.log,
            samples=sidecar.controller.samples.newest,
        ).run()


async def _warn_of_open_secrets(config: Config) -> None:
    with suppress(RuntimeError):  # no thread can be started
        for sentence in await in_thread(lambda: [*secret_files.open_to_others(config)]):
            logger.warning(sentence)


async def _stopped(sidecar: Sidecar, listeners: Listeners, stop: asyncio.Event) -> bool:
    """Wait for the end, and prepare it; return whether a standby has taken over."""
    main_process = sidecar.main_process
    if main_process is not None and await main_process.ends(stop):
        await main_process.hand_over(listeners, sidecar.journal)
        return True
    await stop.wait()
    is_down = sidecar.controller.container.state is State.DOWN  # then no balancer has to notice
    sidecar.controller.inbox.put(StopRequested())
    await asyncio.sleep(0 if is_down else sidecar.config.server.stop_drain)
    await sidecar.journal.settled(DISK_S)  # the latch, which the action may have followed at once
    return False


def _observe_loop(observers: Observers) -> None:
    """Pass on exceptions that asyncio could raise nowhere."""

    def unhandled(_loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        error = context.get("exception")
        known = error if isinstance(error, Exception) else RuntimeError(str(context.get("message")))
        observers.failed("listener", known)

    asyncio.get_running_loop().set_exception_handler(unhandled)


def _freeze_garbage(*, is_successor: bool) -> None:
    """Let full collections skip what lives as long as the process."""
    if not is_successor:
        gc.collect()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()
    gc.freeze()
