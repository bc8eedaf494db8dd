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
from sidecar.controller.controller import Controller, Pace
from sidecar.controller.journal import Journal
from sidecar.controller.ledger import Ledger
from sidecar.controller.membership import Description, Membership
from sidecar.core.life.container import Container, resume, start
from sidecar.core.life.delays import honour_s
from sidecar.core.life.measurements import Measurements
from sidecar.core.life.weight import FULL, Weight
from sidecar.core.types import Policy, RandomIdentity
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
        drain_min_s=settings.drain_min,
        lifetime_s=settings.lifetime,
        lifetime_jitter=settings.lifetime_jitter,
        lifetime_max_s=settings.lifetime_max,
        busy_load=settings.busy_load,
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


async def make_controller(
    settings: Settings, held: HeldBudget, told: Observers, journal: Journal, succession: Succession | None
) -> Controller:
    """The controller, where the last sidecar of this app, or the main before us, left off."""
    rules = policy(settings)
    container = await _container(
        _app(settings), journal, rules, DISK_TAKEN_OVER_S if succession and succession.state else DISK_S
    )
    state_transfer = _carried(settings, succession, container, rules, told)
    controller = Controller(
        state_transfer.container if state_transfer else container,
        policy=rules,
        pace=Pace(settings.check_jitter, settings.check_on_report),
        measurements=state_transfer.measurements if state_transfer else _measurements(settings, rules),
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
        state_transfer.give(controller)
    return controller


def _carried(
    settings: Settings, succession: Succession | None, disk: Container, rules: Policy, told: Observers
) -> Carried | None:
    """What the main before us told of its state, if it can be used, and what the disk knows better."""
    if succession is None or succession.state is None:
        return None
    from sidecar.takeover import state_transfer  # noqa: PLC0415 - most sidecars have no run lock

    state, told_at = succession.state
    measurements, weight = _measurements(settings, rules), _weight(settings)
    try:
        found = state_transfer.thaw(
            state, told_at, app=_app(settings), policy=rules, measurements=measurements, weight=weight
        )
    except state_transfer.RefusedError as error:
        told.failed("handover", error)
        return None
    succession.over += found.over
    return state_transfer.merged(disk, found)


def make_reign(
    settings: Settings, succession: Succession | None, controller: Controller, told: Observers
) -> Reign | None:
    """What a run lock adds; None without one."""
    if succession is None:
        return None
    from sidecar.takeover.main_process import Reign  # noqa: PLC0415 - most sidecars have no run lock

    reign = Reign(settings, succession, controller, policy(settings), told)
    told.also(reign.notice)
    return reign


def remember(reign: Reign, controller: Controller, opened: Doors, ledger: Ledger, teller: Messenger | None) -> None:
    """Let a main go on with the past of the one before, and tell its own, once the parts that keep it are there."""
    from sidecar.takeover.past import Past  # noqa: PLC0415 - most sidecars have no run lock

    reign.remember(Past(controller, opened.history, opened.minutes, ledger, teller))


def _weight(settings: Settings) -> Weight:
    return Weight(floor=settings.weight_floor if settings.weight == "on" else FULL)


def make_membership(settings: Settings, controller: Controller, held: HeldBudget, told: Observers) -> Membership:
    """Who tells the fleet how the container is."""
    membership = Membership(
        controller.snapshot,
        held,
        policy=policy(settings),
        interval_s=settings.beat_interval,
        clock=time.monotonic,
        rng=random.Random(),  # noqa: S311 - as in make_hall
        errors=lambda: controller.measurements.errors.total,
        put=controller.inbox.put,
        told=told.beaten,
        on_failure=partial(told.failed, "beat"),
        about=Description(time.time, settings.error_limit, __version__),
    )
    controller.each_second = membership.look
    return membership


def make_ledger(settings: Settings, held: HeldBudget, told: Observers, controller: Controller) -> Ledger:
    """Who keeps what happens, and hears of it."""
    ledger = Ledger(
        held,
        settings.instance,
        wall=time.time,
        rng=random.Random(),  # noqa: S311 - as in make_hall
        on_failure=partial(told.failed, "ledger"),
        honour_s=honour_s(settings.drain),
        capture=controller.inquest.evidence,
    )
    told.also(ledger.notice)
    told.also_beaten(ledger.beaten)
    told.metrics.registry.register(LedgerReadings(lambda: ledger.waiting, lambda: ledger.dropped))
    return ledger


def _measurements(settings: Settings, rules: Policy) -> Measurements:
    return Measurements(
        round(settings.error_window),
        int(time.monotonic()),
        known_kinds=[kind for kind, _ in rules.kind_limits],
        ignored_kinds=kinds.names(settings.ignore_kinds),
    )


async def _container(app: str, journal: Journal, rules: Policy, disk_s: float) -> Container:
    """Begin where the last sidecar of this app was killed, or anew."""
    memory = await journal.load(disk_s)
    now = time.monotonic()
    identity = RandomIdentity(f"lease-{os.urandom(8).hex()}", random.random())  # noqa: S311 - it spreads the ends, it guards nothing
    if memory is None:
        return start(app, now, rules, nameless=f"unnamed-{os.urandom(6).hex()}", identity=identity)
    container = start(
        app,
        now,
        rules,
        app_start=memory.app_start,
        asked_under=memory.incarnation,
        born=None if memory.born is None else now - (time.time() - memory.born),
        identity=memory.identity if memory.identity.holder else identity,
    )
    if memory.latch is None or not rules.enforce:
        return container
    return resume(container, memory.latch, now, time.time() - memory.latch.at, rules)


def make_readings(controller: Controller, honoured_s: float) -> Readings:
    """What the page of metrics reads of the controller. ``honoured_s``: see ``core.delays.honour_s``."""
    return Readings(
        controller.snapshot,
        counted=lambda: (controller.measurements.errors.ever(), controller.measurements.others.ever()),
        stale=lambda: controller.stale_reports,
        lag_s=lambda: controller.lag_s,
        unix_of=lambda at: time.time() - (time.monotonic() - at),
        honour_s=honoured_s,
    )
