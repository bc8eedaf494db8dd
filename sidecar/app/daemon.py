"""The composition root: has every part made, connects them, and runs them in one task group."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Coroutine, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from prometheus_client import disable_created_metrics

from sidecar.app import budget_parts, input_parts, listeners, notify_parts, parts, rotation_plan
from sidecar.config import rollout
from sidecar.core.life.delays import honour_s
from sidecar.core.life.events import Stopped
from sidecar.net.event_loop import new_loop
from sidecar.net.sockets import CannotListenError
from sidecar.net.threads import DaemonThreads
from sidecar.telemetry.fleet_telemetry import FleetReadings
from sidecar.telemetry.log import Log, logger, logging_to
from sidecar.telemetry.metrics import Metrics
from sidecar.telemetry.observers import Observers

if TYPE_CHECKING:
    from sidecar.config.settings import Settings
    from sidecar.controller.journal import Journal
    from sidecar.takeover.election import Succession
    from sidecar.takeover.main_process import Reign

EXIT_USAGE: Final = 2


def main(settings: Settings) -> int:
    """Run one sidecar until it is told to stop. The exit code is 0, or 2 when a door cannot be opened.

    With a run lock there may be nothing to do: others run already.
    """
    settings = rollout.effective(settings)
    # A timestamp beside every counter would double the page, and nobody reads it.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    metrics = Metrics(settings.mode, settings.error_limit, budget_parts.known_capacity(settings))
    common: dict[str, object] = {"service": settings.service, "instance": settings.instance}
    with logging_to(
        sys.stderr,
        style=settings.log_format,
        level=settings.log_level,
        common=common,
        on_drop=partial(metrics.failed, "log"),
    ):
        try:
            if settings.run_lock:
                from sidecar.takeover import election  # noqa: PLC0415 - most sidecars have no run lock

                return election.run(settings, lambda succession: _in_loop(_run(settings, metrics, succession)))
            _in_loop(_run(settings, metrics))
        except CannotListenError as error:
            sys.stderr.write(f"health-arbiter: {error}\n")
            return EXIT_USAGE
    return 0


def _in_loop(work: Coroutine[None, None, None]) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(work)


async def _run(settings: Settings, metrics: Metrics, succession: Succession | None = None) -> None:
    stop = asyncio.Event()

    def stopped() -> None:
        if stop.is_set():
            os._exit(1)  # the second signal: at once, whatever still hangs
        stop.set()

    loop = asyncio.get_running_loop()
    loop.set_default_executor(DaemonThreads())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped)
    await serve(settings, metrics, stop, succession)


async def serve(
    settings: Settings, metrics: Metrics, stop: asyncio.Event, succession: Succession | None = None
) -> None:
    """Serve until ``stop`` is set, then be out of balance for ``stop_drain`` seconds, then end.

    With a standby that is ready, hand over to it instead. ``succession``: what a run lock and the main before gave.
    """
    told = Observers(metrics, Log(plan=rotation_plan.plan(settings)))
    asyncio.get_running_loop().set_exception_handler(told.unhandled)
    held = budget_parts.opened(settings, partial(told.failed, "budget"))
    journal = parts.make_journal(settings, told)
    controller = await parts.make_controller(settings, held, told, journal, succession)
    reign = parts.make_reign(settings, succession, controller, told)
    offer, inherited = (
        (reign.offer, succession.sockets) if reign and succession else (controller.inbox.offer, listeners.NOTHING)
    )
    membership = parts.make_membership(settings, controller, held, told)
    told.also(membership.notice)
    metrics.registry.register(parts.make_readings(controller, honour_s(settings.drain)))
    metrics.registry.register(FleetReadings(lambda: membership.fleet))
    ledger = parts.make_ledger(settings, held, told, controller)
    async with listeners.opened(
        settings, controller, told, held, membership, offer=offer, inherited=inherited, ledger=ledger
    ) as opened:
        works = [controller.run(), membership.run(), ledger.run(), *_works_of(opened)]
        if (scraper := input_parts.scraper(settings, offer, told)) is not None:
            works.append(scraper.run())
        if (teller := notify_parts.messenger(settings, held, told)) is not None:
            told.also(teller.notice)
            told.also_beaten(teller.beaten)
            works.append(teller.run())
        if reign is not None:
            parts.remember(reign, controller, opened, ledger, teller)
            works.append(reign.begin(opened, journal))
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(work) for work in works]
            _spare_collections(is_second=succession is not None and succession.is_second)
            has_heir = reign is not None and await _inherited(reign, stop, opened, journal)
            if not has_heir:
                await stop.wait()
                controller.inbox.put(Stopped())
                await asyncio.sleep(settings.stop_drain)
            for task in running:
                task.cancel()
    if reign is not None:
        reign.close()
    if not has_heir:
        await membership.beat()  # goodbye, unless it was said already
    await ledger.finish()
    await held.aclose()
    logger.info("stopped")


async def _inherited(reign: Reign, stop: asyncio.Event, opened: listeners.Doors, journal: Journal) -> bool:
    """Wait for the end, and hand over; False when nobody is there to hand over to."""
    has_heir = await reign.ends(stop)
    if has_heir:
        await reign.hand_over(opened, journal)
    return has_heir


def _works_of(opened: listeners.Doors) -> Iterator[Coroutine[None, None, None]]:
    yield opened.minutes.run()
    for listener in opened.listeners:
        yield listener.sweep()
    if opened.tls is not None:
        yield opened.tls.watch()


def _spare_collections(*, is_second: bool) -> None:
    """What lives as long as the process need not be walked by every full collection."""
    if not is_second:
        gc.collect()
    gc.enable()
    gc.freeze()
