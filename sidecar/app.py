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

from sidecar import __version__, bucket, doors, explaining, feeds, kinds, messengers, ramp, renewal
from sidecar.answer.fleet import FleetReadings
from sidecar.answer.ledger import LedgerReadings
from sidecar.answer.log import Log, logger, logging_to
from sidecar.answer.metrics import Metrics, Readings
from sidecar.budget.held import HeldBudget
from sidecar.core import arbiter
from sidecar.core.arbiter import Standing, Stopped
from sidecar.core.delays import honour_s
from sidecar.core.weight import FULL, Weight
from sidecar.core.witness import Witness
from sidecar.core.words import Lot, Policy
from sidecar.journal import Journal
from sidecar.ledger import Ledger
from sidecar.loop import Hall, Pace
from sidecar.observers import Observers
from sidecar.pulse import Description, Pulse
from sidecar.sockets import CannotListenError
from sidecar.thread import DaemonThreads

if TYPE_CHECKING:
    from sidecar.settings import Settings
    from sidecar.standby.carried import Carried
    from sidecar.standby.reign import Reign
    from sidecar.standby.roles import Succession

DISK_S: Final = 2.0
DISK_TAKEN_OVER_S: Final = 0.25
"""For a standby, whom polls wait for, and who was told what stands there."""

EXIT_USAGE: Final = 2


def main(settings: Settings) -> int:
    """Run one sidecar until it is told to stop. The exit code is 0, or 2 when a door cannot be opened.

    With a run lock there may be nothing to do: others run already.
    """
    settings = ramp.effective(settings)
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
            if settings.run_lock:
                from sidecar.standby import roles  # noqa: PLC0415 - most sidecars have no run lock

                return roles.run(settings, lambda succession: asyncio.run(_run(settings, metrics, succession)))
            asyncio.run(_run(settings, metrics))
        except CannotListenError as error:
            sys.stderr.write(f"health-arbiter: {error}\n")
            return EXIT_USAGE
    return 0


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
    told = Observers(metrics, Log(plan=renewal.plan(settings)))
    asyncio.get_running_loop().set_exception_handler(told.unhandled)
    held = bucket.opened(settings, partial(told.failed, "budget"))
    journal = _journal(settings, told)
    hall = await _hall(settings, held, told, journal, succession)
    reign = _reign(settings, succession, hall, told)
    offer, inherited = (reign.offer, succession.sockets) if reign and succession else (hall.inbox.offer, doors.NOTHING)
    pulse = _pulse(settings, hall, held, told)
    told.also(pulse.notice)
    metrics.registry.register(_readings(hall, honour_s(settings.drain)))
    metrics.registry.register(FleetReadings(lambda: pulse.fleet))
    ledger = _ledger(settings, held, told, hall)
    async with doors.opened(
        settings, hall, told, held, pulse, offer=offer, inherited=inherited, ledger=ledger
    ) as opened:
        works = [hall.run(), pulse.run(), ledger.run(), opened.minutes.run()]
        works += [listener.sweep() for listener in opened.listeners]
        if opened.tls is not None:
            works.append(opened.tls.watch())
        if (scraper := feeds.scraper(settings, offer, told)) is not None:
            works.append(scraper.run())
        if reign is not None:
            works.append(reign.begin(opened, journal))
        if (teller := messengers.messenger(settings, held, told)) is not None:
            told.also(teller.notice)
            told.also_beaten(teller.beaten)
            works.append(teller.run())
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(work) for work in works]
            if succession is None or not succession.is_second:
                gc.collect()
            gc.enable()
            gc.freeze()  # what lives as long as the process need not be walked by every full collection
            has_heir = reign is not None and await reign.ends(stop)
            if reign is not None and has_heir:
                await reign.hand_over(opened, journal)
            else:
                await stop.wait()
                hall.inbox.put(Stopped())
                await asyncio.sleep(settings.stop_drain)
            for task in running:
                task.cancel()
    if reign is not None:
        reign.close()
    if not has_heir:
        await pulse.beat()  # goodbye, unless it was said already
    await ledger.finish()
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
        lifetime_s=settings.lifetime,
        lifetime_jitter=settings.lifetime_jitter,
        lifetime_max_s=settings.lifetime_max,
        busy_above=settings.busy_above,
        retire_slots=str(renewal.slots(settings)),
        retire_timeout_s=settings.retire_timeout,
        enforce=settings.mode == "enforce",
    )


def _journal(settings: Settings, told: Observers) -> Journal:
    place = settings.state_dir or settings.run_lock
    return Journal(Path(place) if place else None, _app(settings), told.journal_failed)


def _app(settings: Settings) -> str:
    return f"{settings.service}/{settings.instance}"


async def _hall(
    settings: Settings, held: HeldBudget, told: Observers, journal: Journal, succession: Succession | None
) -> Hall:
    rules = policy(settings)
    standing = await _standing(
        _app(settings), journal, rules, DISK_TAKEN_OVER_S if succession and succession.state else DISK_S
    )
    carried = _carried(settings, succession, standing, rules, told)
    hall = Hall(
        carried.standing if carried else standing,
        policy=rules,
        pace=Pace(settings.check_jitter, settings.check_on_ping),
        witness=carried.witness if carried else _witness(settings, rules),
        weight=carried.weight if carried else _weight(settings),
        budget=held,
        journal=journal,
        clock=time.monotonic,
        wall=time.time,
        rng=random.Random(),  # noqa: S311 - it spreads timers, it guards nothing
        observe=told.step,
        on_failure=partial(told.failed, "step"),
        inquest=explaining.inquest(settings, told),
    )
    if carried is not None:
        carried.give(hall)
    return hall


def _carried(
    settings: Settings, succession: Succession | None, disk: Standing, rules: Policy, told: Observers
) -> Carried | None:
    """What the main before us told of its state, if it can be used, and what the disk knows better."""
    if succession is None or succession.state is None:
        return None
    from sidecar.standby import carried  # noqa: PLC0415 - as in main

    state, told_at = succession.state
    witness, weight = _witness(settings, rules), _weight(settings)
    try:
        found = carried.thaw(state, told_at, app=_app(settings), policy=rules, witness=witness, weight=weight)
    except carried.RefusedError as error:
        told.failed("handover", error)
        return None
    succession.over += found.over
    return carried.merged(disk, found)


def _reign(settings: Settings, succession: Succession | None, hall: Hall, told: Observers) -> Reign | None:
    if succession is None:
        return None
    from sidecar.standby.reign import Reign  # noqa: PLC0415 - as in main

    reign = Reign(settings, succession, hall, policy(settings), told)
    told.also(reign.notice)
    return reign


def _weight(settings: Settings) -> Weight:
    return Weight(floor=settings.weight_floor if settings.weight == "on" else FULL)


def _pulse(settings: Settings, hall: Hall, held: HeldBudget, told: Observers) -> Pulse:
    return Pulse(
        hall.snapshot,
        held,
        interval_s=settings.beat,
        clock=time.monotonic,
        rng=random.Random(),  # noqa: S311 - as in _hall
        told=told.beaten,
        on_failure=partial(told.failed, "beat"),
        about=Description(time.time, settings.error_limit, __version__),
    )


def _ledger(settings: Settings, held: HeldBudget, told: Observers, hall: Hall) -> Ledger:
    ledger = Ledger(
        held,
        settings.instance,
        wall=time.time,
        rng=random.Random(),  # noqa: S311 - as in _hall
        on_failure=partial(told.failed, "ledger"),
        honour_s=honour_s(settings.drain),
        capture=lambda: hall.capture,
    )
    told.also(ledger.notice)
    told.also_beaten(ledger.beaten)
    told.metrics.registry.register(LedgerReadings(lambda: ledger.waiting, lambda: ledger.dropped))
    return ledger


def _witness(settings: Settings, rules: Policy) -> Witness:
    return Witness(
        round(settings.error_window),
        int(time.monotonic()),
        known_kinds=[kind for kind, _ in rules.kind_limits],
        ignored_kinds=kinds.names(settings.ignore_kinds),
    )


async def _standing(app: str, journal: Journal, rules: Policy, disk_s: float) -> Standing:
    """Begin where the last sidecar of this app was killed, or anew."""
    memory = await journal.load(disk_s)
    now = time.monotonic()
    lot = Lot(f"lease-{os.urandom(8).hex()}", random.random())  # noqa: S311 - it spreads the ends, it guards nothing
    if memory is None:
        return arbiter.start(app, now, rules, nameless=f"unnamed-{os.urandom(6).hex()}", lot=lot)
    standing = arbiter.start(
        app,
        now,
        rules,
        app_start=memory.app_start,
        asked_under=memory.incarnation,
        born=None if memory.born is None else now - (time.time() - memory.born),
        lot=memory.lot if memory.lot.holder else lot,
    )
    if memory.latch is None or not rules.enforce:
        return standing
    return arbiter.resume(standing, memory.latch, now, time.time() - memory.latch.at, rules)


def _readings(hall: Hall, honoured_s: float) -> Readings:
    return Readings(
        hall.snapshot,
        counted=lambda: (hall.witness.errors.ever(), hall.witness.others.ever()),
        stale=lambda: hall.stale_reports,
        lag_s=lambda: hall.lag_s,
        unix_of=lambda at: time.time() - (time.monotonic() - at),
        honour_s=honoured_s,
    )
