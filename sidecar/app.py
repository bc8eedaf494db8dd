"""The composition root: builds every part from the settings, connects them, and runs them in one task group."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prometheus_client import disable_created_metrics

from sidecar import bucket, doors, feeds, kinds
from sidecar.answer.fleet import FleetReadings
from sidecar.answer.log import Log, logger, logging_to
from sidecar.answer.metrics import Metrics, Readings
from sidecar.budget.held import HeldBudget
from sidecar.core import arbiter
from sidecar.core.arbiter import Standing, Stopped
from sidecar.core.weight import FULL, Weight
from sidecar.core.witness import Witness
from sidecar.core.words import Policy
from sidecar.journal import Journal
from sidecar.loop import Hall, Pace
from sidecar.observers import Observers
from sidecar.pulse import Pulse
from sidecar.sockets import CannotListenError
from sidecar.thread import DaemonThreads

if TYPE_CHECKING:
    from sidecar.settings import Settings

DISK_S: Final = 2.0
EXIT_USAGE: Final = 2


def main(settings: Settings) -> int:
    """Run one sidecar until it is told to stop. The exit code is 0, or 2 when a door cannot be opened."""
    # A timestamp beside every counter would double the page, and nobody reads it.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    metrics = Metrics(settings.mode, settings.error_limit, bucket.known_capacity(settings))
    common: dict[str, object] = {"service": settings.service, "instance": settings.instance}
    with logging_to(
        sys.stderr,
        style=settings.log_format,
        level=settings.log_level,
        common=common,
        on_drop=partial(metrics.failed, "log"),
    ):
        try:
            asyncio.run(_run(settings, metrics))
        except CannotListenError as error:
            sys.stderr.write(f"health-arbiter: {error}\n")
            return EXIT_USAGE
    return 0


async def _run(settings: Settings, metrics: Metrics) -> None:
    stop = asyncio.Event()

    def stopped() -> None:
        if stop.is_set():
            os._exit(1)  # the second signal: at once, whatever still hangs
        stop.set()

    loop = asyncio.get_running_loop()
    loop.set_default_executor(DaemonThreads())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped)
    await serve(settings, metrics, stop)


async def serve(settings: Settings, metrics: Metrics, stop: asyncio.Event) -> None:
    """Serve until ``stop`` is set, then be out of balance for ``stop_drain`` seconds, then end."""
    told = Observers(metrics, Log())
    asyncio.get_running_loop().set_exception_handler(told.unhandled)
    held = bucket.opened(settings, partial(told.failed, "budget"))
    hall = await _hall(settings, held, told)
    pulse = _pulse(settings, hall, held, told)
    told.also(pulse.notice)
    metrics.registry.register(_readings(hall))
    metrics.registry.register(FleetReadings(lambda: pulse.fleet))
    async with doors.opened(settings, hall, told, held, pulse) as listeners:
        works = [hall.run(), pulse.run(), *(listener.sweep() for listener in listeners)]
        if (scraper := feeds.scraper(settings, hall, told)) is not None:
            works.append(scraper.run())
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(work) for work in works]
            gc.collect()
            gc.enable()
            gc.freeze()  # what lives as long as the process need not be walked by every full collection
            await stop.wait()
            hall.inbox.put(Stopped())
            await asyncio.sleep(settings.stop_drain)
            for task in running:
                task.cancel()
    await pulse.beat()  # goodbye, unless it was said already
    await held.aclose()
    logger.info("stopped")


def policy(settings: Settings) -> Policy:
    """The numbers that the core judges and moves by."""
    return Policy(
        error_limit=settings.error_limit,
        kind_limits=kinds.limits(settings.kind_limits),
        error_ratio=settings.error_ratio,
        ratio_min_requests=settings.ratio_min_requests,
        consecutive_limit=settings.consecutive_limit,
        heartbeat_timeout_s=settings.heartbeat_timeout,
        scrape_down_after=settings.scrape_down_after,
        confirm=settings.confirm,
        min_age_s=settings.min_age,
        check_interval_s=settings.check_interval,
        grace_s=settings.grace,
        settle_s=settings.settle,
        drain_s=settings.drain,
        drain_least_s=settings.drain_least,
        enforce=settings.mode == "enforce",
    )


async def _hall(settings: Settings, held: HeldBudget, told: Observers) -> Hall:
    app = f"{settings.service}/{settings.instance}"
    directory = Path(settings.state_dir) if settings.state_dir else None
    journal = Journal(directory, app, told.journal_failed)
    rules = policy(settings)
    return Hall(
        await _standing(app, journal, rules),
        policy=rules,
        pace=Pace(settings.check_jitter, settings.check_on_ping),
        witness=_witness(settings, rules),
        weight=Weight(floor=settings.weight_floor if settings.weight == "on" else FULL),
        budget=held,
        journal=journal,
        clock=time.monotonic,
        wall=time.time,
        rng=random.Random(),  # noqa: S311 - it spreads timers, it guards nothing
        observe=told.step,
        on_failure=partial(told.failed, "step"),
    )


def _pulse(settings: Settings, hall: Hall, held: HeldBudget, told: Observers) -> Pulse:
    return Pulse(
        hall.snapshot,
        held,
        interval_s=settings.beat,
        clock=time.monotonic,
        rng=random.Random(),  # noqa: S311 - as in _hall
        told=told.beaten,
    )


def _witness(settings: Settings, rules: Policy) -> Witness:
    return Witness(
        round(settings.error_window),
        int(time.monotonic()),
        known_kinds=[kind for kind, _ in rules.kind_limits],
        ignored_kinds=kinds.names(settings.ignore_kinds),
    )


async def _standing(app: str, journal: Journal, rules: Policy) -> Standing:
    """Begin where the last sidecar of this app was killed, or anew."""
    memory = await journal.load(DISK_S)
    now = time.monotonic()
    if memory is None:
        return arbiter.start(app, now, rules, nameless=f"unnamed-{os.urandom(6).hex()}")
    standing = arbiter.start(app, now, rules, app_start=memory.app_start, asked_under=memory.incarnation)
    if memory.latch is None or not rules.enforce:
        return standing
    return arbiter.resume(standing, memory.latch, now, time.time() - memory.latch.at, rules)


def _readings(hall: Hall) -> Readings:
    return Readings(
        hall.snapshot,
        counted=lambda: (hall.witness.errors.ever(), hall.witness.others.ever()),
        stale=lambda: hall.stale_reports,
        lag_s=lambda: hall.lag_s,
        unix_of=lambda at: time.time() - (time.monotonic() - at),
    )
