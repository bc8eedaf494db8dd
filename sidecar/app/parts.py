"""The parts of a sidecar, each made from the settings; ``app`` connects and runs them."""

from __future__ import annotations

import os
import random
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sidecar import __version__
from sidecar.app import rotation_plan, why_parts
from sidecar.config import kinds
from sidecar.controller.controller import Hall, Pace
from sidecar.controller.journal import Journal
from sidecar.controller.ledger import Ledger
from sidecar.controller.membership import Description, Pulse
from sidecar.core.life.container_state import Standing, resume, start
from sidecar.core.life.delays import honour_s
from sidecar.core.life.measurements import Witness
from sidecar.core.life.weight import FULL, Weight
from sidecar.core.types import Lot, Policy
from sidecar.store.held_budget import HeldBudget
from sidecar.telemetry.ledger_metrics import LedgerReadings
from sidecar.telemetry.metrics import Readings
from sidecar.telemetry.observers import Observers

if TYPE_CHECKING:
    from sidecar.app.listeners import Doors
    from sidecar.config.settings import Settings
    from sidecar.notify.messenger import Messenger
    from sidecar.takeover.election import Succession
    from sidecar.takeover.main_process import Reign
    from sidecar.takeover.state_transfer import Carried

DISK_S: Final = 2.0
DISK_TAKEN_OVER_S: Final = 0.25
"""For a standby, whom polls wait for, and who was told what stands there."""


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
        outlier=settings.outlier == "on",
        confirm=settings.confirm,
        min_age_s=settings.min_age,
        check_interval_s=settings.check_interval,
        grace_s=settings.grace,
        settle_s=settings.settle,
        soft_drain=settings.soft_drain == "on",
        drain_s=settings.drain,
        drain_least_s=settings.drain_least,
        lifetime_s=settings.lifetime,
        lifetime_jitter=settings.lifetime_jitter,
        lifetime_max_s=settings.lifetime_max,
        busy_above=settings.busy_above,
        retire_slots=str(rotation_plan.slots(settings)),
        retire_timeout_s=settings.retire_timeout,
        enforce=settings.mode == "enforce",
    )


def make_journal(settings: Settings, told: Observers) -> Journal:
    """What outlives the process: in the state directory, or else beside the run lock; nowhere if there is neither."""
    place = settings.state_dir or settings.run_lock
    return Journal(Path(place) if place else None, _app(settings), told.journal_failed)


def _app(settings: Settings) -> str:
    return f"{settings.service}/{settings.instance}"


async def make_hall(
    settings: Settings, held: HeldBudget, told: Observers, journal: Journal, succession: Succession | None
) -> Hall:
    """The hall, where the last sidecar of this app, or the main before us, left off."""
    rules = policy(settings)
    standing = await _standing(
        _app(settings), journal, rules, DISK_TAKEN_OVER_S if succession and succession.state else DISK_S
    )
    state_transfer = _carried(settings, succession, standing, rules, told)
    hall = Hall(
        state_transfer.standing if state_transfer else standing,
        policy=rules,
        pace=Pace(settings.check_jitter, settings.check_on_ping),
        witness=state_transfer.witness if state_transfer else _witness(settings, rules),
        weight=state_transfer.weight if state_transfer else _weight(settings),
        budget=held,
        journal=journal,
        clock=time.monotonic,
        wall=time.time,
        rng=random.Random(),  # noqa: S311 - it spreads timers, it guards nothing
        observe=told.step,
        on_failure=partial(told.failed, "step"),
        inquest=why_parts.inquest(settings, told),
    )
    if state_transfer is not None:
        state_transfer.give(hall)
    return hall


def _carried(
    settings: Settings, succession: Succession | None, disk: Standing, rules: Policy, told: Observers
) -> Carried | None:
    """What the main before us told of its state, if it can be used, and what the disk knows better."""
    if succession is None or succession.state is None:
        return None
    from sidecar.takeover import state_transfer  # noqa: PLC0415 - most sidecars have no run lock

    state, told_at = succession.state
    witness, weight = _witness(settings, rules), _weight(settings)
    try:
        found = state_transfer.thaw(state, told_at, app=_app(settings), policy=rules, witness=witness, weight=weight)
    except state_transfer.RefusedError as error:
        told.failed("handover", error)
        return None
    succession.over += found.over
    return state_transfer.merged(disk, found)


def make_reign(settings: Settings, succession: Succession | None, hall: Hall, told: Observers) -> Reign | None:
    """What a run lock adds; None without one."""
    if succession is None:
        return None
    from sidecar.takeover.main_process import Reign  # noqa: PLC0415 - most sidecars have no run lock

    reign = Reign(settings, succession, hall, policy(settings), told)
    told.also(reign.notice)
    return reign


def remember(reign: Reign, hall: Hall, opened: Doors, ledger: Ledger, teller: Messenger | None) -> None:
    """Let a main go on with the past of the one before, and tell its own, once the parts that keep it are there."""
    from sidecar.takeover.past import Past  # noqa: PLC0415 - most sidecars have no run lock

    reign.remember(Past(hall, opened.history, opened.minutes, ledger, teller))


def _weight(settings: Settings) -> Weight:
    return Weight(floor=settings.weight_floor if settings.weight == "on" else FULL)


def make_pulse(settings: Settings, hall: Hall, held: HeldBudget, told: Observers) -> Pulse:
    """Who tells the fleet how the container is."""
    pulse = Pulse(
        hall.snapshot,
        held,
        policy=policy(settings),
        interval_s=settings.beat,
        clock=time.monotonic,
        rng=random.Random(),  # noqa: S311 - as in make_hall
        errors=lambda: hall.witness.errors.total,
        put=hall.inbox.put,
        told=told.beaten,
        on_failure=partial(told.failed, "beat"),
        about=Description(time.time, settings.error_limit, __version__),
    )
    hall.each_second = pulse.look
    return pulse


def make_ledger(settings: Settings, held: HeldBudget, told: Observers, hall: Hall) -> Ledger:
    """Who keeps what happens, and hears of it."""
    ledger = Ledger(
        held,
        settings.instance,
        wall=time.time,
        rng=random.Random(),  # noqa: S311 - as in make_hall
        on_failure=partial(told.failed, "ledger"),
        honour_s=honour_s(settings.drain),
        capture=hall.inquest.evidence,
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
        return start(app, now, rules, nameless=f"unnamed-{os.urandom(6).hex()}", lot=lot)
    standing = start(
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
    return resume(standing, memory.latch, now, time.time() - memory.latch.at, rules)


def make_readings(hall: Hall, honoured_s: float) -> Readings:
    """What the page of metrics reads of the hall. ``honoured_s``: see ``core.delays.honour_s``."""
    return Readings(
        hall.snapshot,
        counted=lambda: (hall.witness.errors.ever(), hall.witness.others.ever()),
        stale=lambda: hall.stale_reports,
        lag_s=lambda: hall.lag_s,
        unix_of=lambda at: time.time() - (time.monotonic() - at),
        honour_s=honoured_s,
    )
