"""Builds what a run lock adds: the election, the duties of the main, and the state of the previous main."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge

from sidecar.app import late_imports
from sidecar.takeover import state_transfer
from sidecar.takeover.election import SHARED_SOCKETS, Election
from sidecar.takeover.main_process import MainProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.config.slices import Config, RunLockConfig
    from sidecar.controller.container_controller import Controller
    from sidecar.controller.incarnation_ids import IncarnationIds
    from sidecar.core.life.container import Container
    from sidecar.core.measure.measurements import Measurements
    from sidecar.core.measure.weight import Weight
    from sidecar.core.types import Policy
    from sidecar.takeover.election import Takeover
    from sidecar.takeover.state_transfer import TransferredState
    from sidecar.telemetry.metrics import Metrics
    from sidecar.telemetry.observers import Observers


def election(config: Config) -> Election:
    """Return the election for the run lock of the configuration."""
    values = config.server._asdict() | config.statsd._asdict()
    return Election(
        config.run_lock,
        app=config.identity.app,
        addresses={name: str(values[name]) for name in SHARED_SOCKETS},
        modules=_modules(config),
    )


def _modules(config: Config) -> list[str]:
    """Return the modules that the sidecar would otherwise import at their first use."""
    return [
        *late_imports.MODULES,
        "sidecar.store.redis_client" if config.redis.redis_url else "sidecar.store.memory",
        *(["sidecar.app.build_datagrams"] if config.statsd.has_sockets else []),
        *(["sidecar.app.build_scraper"] if config.scrape.scrape_url else []),
        *(["sidecar.app.build_notify"] if config.notify.has_receivers else []),
        *(["sidecar.actions.hook"] if config.hook.cull_hook else []),
    ]


def transferred_state(
    takeover: Takeover,
    disk: Container,
    disk_ids: IncarnationIds,
    *,
    app: str,
    policy: Policy,
    measurements: Measurements,
    weight: Weight,
    on_failure: Callable[[Exception], None],
) -> TransferredState | None:
    """Return the state of the previous main, merged with the disk; None if there is no usable one."""
    if takeover.state is None:
        return None
    dumped, received_at = takeover.state
    try:
        state = state_transfer.load(
            dumped, received_at, app=app, policy=policy, measurements=measurements, weight=weight
        )
    except state_transfer.RefusedError as error:
        on_failure(error)
        return None
    takeover.ended_latches += state.ended_latches
    return state_transfer.merge(disk, disk_ids, state)


def main_process(
    config: RunLockConfig,
    takeover: Takeover,
    controller: Controller,
    policy: Policy,
    *,
    observers: Observers,
    metrics: Metrics,
) -> MainProcess:
    """Return the duties of the main, as an observer of the controller and with the gauge of its standby."""
    main = MainProcess(
        takeover,
        controller,
        policy,
        lifetime_s=config.run_lifetime,
        on_failure=partial(observers.failed, "handover"),
    )
    observers.steps.append(main.notice)
    if config.standby:
        count_ready(metrics.registry, lambda: main.is_ready)
    return main


def count_ready(registry: CollectorRegistry, is_ready: Callable[[], bool]) -> None:
    """Register the gauge that shows whether a standby is ready."""
    ready = Gauge("arbiter_standby_ready", "1 if a standby waits to take over.", registry=registry)
    ready.set_function(is_ready)
