"""Builds one sidecar from its configuration: makes every part and connects them. ``daemon`` runs what is built here.

The budget is built in ``build_store``, the listeners in ``build_servers``, and in ``build_optional`` what few have.
"""

from __future__ import annotations

import os
import random
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sidecar import __version__
from sidecar.app import build_store
from sidecar.config import addresses, syntax
from sidecar.controller.beat_content import about
from sidecar.controller.container_controller import Controller
from sidecar.controller.effects import EffectRunner
from sidecar.controller.inbox import Inbox
from sidecar.controller.incarnation_ids import IncarnationIds
from sidecar.controller.journal import Journal
from sidecar.controller.ledger import Ledger
from sidecar.controller.membership import Membership
from sidecar.controller.runtime import Runtime
from sidecar.core.claims import NAMELESS, RandomIdentity
from sidecar.core.fleet.common_trait import Traits
from sidecar.core.fleet.members import digest_of
from sidecar.core.life.assessment import Assessment
from sidecar.core.life.container import Container, start
from sidecar.core.measure.measurements import Measurements
from sidecar.core.measure.weight import FLOOR, FULL, Weight
from sidecar.core.types import Policy, State
from sidecar.telemetry import Observers, readings
from sidecar.telemetry.log import Log, logger
from sidecar.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sidecar.actions.actuator import Actuator
    from sidecar.actions.program import Hook
    from sidecar.config.settings import Config
    from sidecar.core.app_reports import Report
    from sidecar.core.fleet.members import About
    from sidecar.core.life.snapshot import Snapshot
    from sidecar.inputs.app_port import AppPort
    from sidecar.inputs.scrape import Scraper
    from sidecar.notify.messenger import Messenger
    from sidecar.store.budget import FleetBudget

DISK_S: Final = 2.0
"""Maximum time to read the state file."""
RETIRE_TIMEOUT_S: Final = 600.0
"""Maximum time of a retirement after its drain; then its slot is free, and the container is up again."""


class Sidecar(NamedTuple):
    """The parts of one sidecar."""

    config: Config
    metrics: Metrics
    log: Log
    observers: Observers
    budget: FleetBudget
    journal: Journal
    controller: Controller
    describe: Callable[[Snapshot], About]
    membership: Membership
    ledger: Ledger
    actuator: Actuator | None
    app_port: AppPort | None
    others: Sequence[Scraper | Messenger]

    def snapshot(self) -> Snapshot:
        """What the controller published last."""
        return self.controller.snapshot

    def warnings(self) -> list[str]:
        """What keeps a cull from being carried out or a restart from being noticed, in sentences for a person."""
        warnings = [*self.actuator.missing] if self.actuator else []
        if self.app_port and not self.app_port.is_listening:
            warnings.append(nobody_listens(self.config.app.app_port))
        return warnings

    @property
    def offer(self) -> Callable[[Sequence[Report]], bool]:
        """Takes reports; False if too many are waiting."""
        return self.controller.inbox.offer


async def build(config: Config, metrics: Metrics, leave: Callable[[], None] = lambda: None) -> Sidecar:
    """Build the sidecar. It continues where the state file left off.

    ``leave`` ends this process, for the action ``exit``.
    """
    log = Log(plan=build_store.rotation_plan(config))
    observers = Observers(metrics, log)
    budget = build_store.budget(config, partial(observers.failed, "budget"))
    journal = Journal(
        Path(config.state_directory) if config.state_directory else None,
        config.identity.app,
        lambda operation, error: observers.failed("journal", error, operation),
    )
    inbox, describe = Inbox(), _describe(config)
    membership = _membership(config, budget, inbox, observers, describe)
    hook, actuator = None, None
    others: list[Scraper | Messenger] = []
    if has_optional(config):
        from sidecar.app import build_optional  # noqa: PLC0415 - see there

        hook = build_optional.hook(config, observers)
        actuator = build_optional.actuator(config, metrics, observers, leave)
    controller = await _controller(
        config, journal, observers, budget=budget, inbox=inbox, publish=membership.update, hook=hook
    )
    if config.app.scrape_url:
        others.append(build_optional.scraper(config, inbox.offer, observers))
    if config.notify.has_webhook:
        samples = controller.assessment.measurements.samples.newest
        others.append(build_optional.messenger(config, budget, metrics, observers, log, samples=samples))
    ledger = _ledger(config, budget, observers)
    _add_readings(metrics, controller, membership, ledger)
    return Sidecar(
        config,
        metrics,
        log,
        observers,
        budget,
        journal,
        controller,
        describe,
        membership,
        ledger,
        actuator,
        _app_port(config, controller, observers, metrics) if config.app.app_port else None,
        others,
    )


def has_optional(config: Config) -> bool:
    """Whether a part of ``build_optional`` is configured."""
    has_action = bool(config.culling.cull_hook) or config.action.action != "check"
    return has_action or bool(config.app.scrape_url) or config.notify.has_webhook


def metrics_of(config: Config) -> Metrics:
    """The metrics of this sidecar; they are needed before the log, which counts its lost lines."""
    return Metrics(config.identity.mode, config.judging.error_limit, build_store.known_capacity(config.budget))


def traits(config: Config) -> Traits:
    """What this container may share with others, as far as the settings say."""
    return Traits(config.identity.app_version, config.identity.node)


def policy(config: Config) -> Policy:
    """The numbers by which the core judges and acts. A setting goes to the field of its name, or that with ``_s``."""
    settings: dict[str, Any] = {name: value for part in config for name, value in part._asdict().items()}
    numbers = {
        field: settings[name] == "on" if isinstance(default, bool) else settings[name]
        for field, default in Policy._field_defaults.items()
        if (name := field.removesuffix("_s")) in settings
    }
    return Policy(**numbers)._replace(
        kind_limits=syntax.kind_limits(config.judging.kind_limits),
        retire_slots=str(build_store.share(config.retirement.retire_slots)),
        retire_timeout_s=RETIRE_TIMEOUT_S + config.culling.drain,  # it ends after the drain
        enforce=config.identity.mode == "enforce",
    )


def _rng() -> random.Random:
    return random.Random()  # noqa: S311 - it spreads timers and retries, it guards nothing


def _runtime(observers: Observers, part: str) -> Runtime:
    return Runtime(time.monotonic, time.time, _rng(), partial(observers.failed, part))


def _describe(config: Config) -> Callable[[Snapshot], About]:
    """What the list of the fleet says about this container."""
    return partial(
        about,
        limit=config.judging.error_limit,
        version=__version__,
        settings=digest_of(build_store.fleet_settings(config).dump()),
        traits=traits(config),
    )


def _membership(
    config: Config, budget: FleetBudget, inbox: Inbox, observers: Observers, describe: Callable[[Snapshot], About]
) -> Membership:
    return Membership(
        budget.beat,
        _runtime(observers, "beat"),
        error_limit=config.judging.error_limit,
        interval_s=config.budget.beat_interval,
        put=inbox.put,
        on_answer=observers.beat,
        lost=budget.store.lost,
        describe=lambda snapshot: describe(snapshot).dump(),
    )


async def _controller(
    config: Config,
    journal: Journal,
    observers: Observers,
    *,
    budget: FleetBudget,
    inbox: Inbox,
    publish: Callable[[Snapshot], None],
    hook: Hook | None,
) -> Controller:
    rules, runtime = policy(config), _runtime(observers, "step")
    measurements = Measurements(
        round(config.judging.error_window),
        int(time.monotonic()),
        known_kinds=[kind for kind, _ in rules.kind_limits],
        ignored_kinds=syntax.ignored_kinds(config.judging.kind_limits),
    )
    weight = Weight(floor=FLOOR if config.culling.weight == "on" else FULL)
    container, ids = await _container(config.identity.app, journal, rules)
    return Controller(
        container,
        Assessment(measurements, weight, rules),
        EffectRunner(budget, journal, inbox.put, runtime, policy=rules, hook=hook),
        inbox,
        runtime,
        policy=rules,
        observe=observers.step,
        publish=publish,
        ids=ids,
    )


async def _container(app: str, journal: Journal, rules: Policy) -> tuple[Container, IncarnationIds]:
    """Return the container of the state file with its ids, or a new one."""
    saved = await journal.load(DISK_S)
    now = time.monotonic()
    identity = RandomIdentity(f"lease-{os.urandom(8).hex()}", _rng().random())
    if saved is None:
        nameless = f"{NAMELESS[0]}{os.urandom(6).hex()}"
        return start(app, now, rules, nameless=nameless, identity=identity), IncarnationIds()
    container = saved.container(now, time.time(), rules, identity)
    if latch := container.latch:
        taken_out = "retired" if latch.lease else "culled"
        text = f"still {container.state}: the state file says that this container was {taken_out}"
        logger.warning(text, extra={"fields": {"state": container.state, "reason": latch.reason}})
    return container, IncarnationIds(saved.app_start, socket=saved.socket)


def _app_port(config: Config, controller: Controller, observers: Observers, metrics: Metrics) -> AppPort:
    from sidecar.inputs.app_port import AppPort  # noqa: PLC0415 - 0.1 MiB that few sidecars need

    at = config.app.app_port
    watch = AppPort(
        addresses.port_of(at),
        offer=controller.inbox.offer,
        is_well=lambda: controller.snapshot.container.state is State.UP,
        on_failure=partial(observers.failed, "app_port"),
        on_absent=lambda: logger.warning(nobody_listens(at)),
        grace_s=config.judging.grace,
        present=controller.ids.socket,
    )
    text = "Whether something listens at the app's port; only with ARBITER_APP_PORT."
    metrics.gauge("arbiter_app_listening", text, lambda: watch.is_listening)
    return watch


def nobody_listens(at: str) -> str:
    """The sentence for a person about the value of ``ARBITER_APP_PORT``."""
    return f"nobody listens at ARBITER_APP_PORT {at}: a restart of the app in place is not noticed"


def _ledger(config: Config, budget: FleetBudget, observers: Observers) -> Ledger:
    ledger = Ledger(
        budget.note,
        config.identity.instance,
        _runtime(observers, "ledger"),
        traits(config),
    )
    observers.steps.append(ledger.notice)
    observers.beats.append(ledger.beaten)
    observers.actions.append(ledger.add)
    return ledger


def _add_readings(metrics: Metrics, controller: Controller, membership: Membership, ledger: Ledger) -> None:
    measurements = controller.assessment.measurements
    for read in (
        lambda: readings.of_container(controller.snapshot, time.monotonic()),
        lambda: readings.of_controller(
            measurements.errors.ever(), measurements.others.ever(), controller.stale_reports, controller.lag_s
        ),
        lambda: readings.of_fleet(membership.fleet),
        lambda: readings.of_ledger(ledger.waiting, ledger.dropped),
    ):
        metrics.read(read)
