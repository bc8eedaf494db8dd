"""Builds the part that watches the app's port."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge

from sidecar.config import addresses
from sidecar.core.types import State
from sidecar.inputs.app_port import AppPort

if TYPE_CHECKING:
    from sidecar.app.build import Sidecar


def app_port(sidecar: Sidecar) -> AppPort:
    """Build the watch of ``ARBITER_APP_PORT`` for this sidecar, and the metric that shows what it sees."""
    watch = AppPort(
        addresses.port_of(sidecar.config.app.app_port),
        offer=sidecar.offer,
        is_well=lambda: sidecar.snapshot().container.state is State.UP,
        on_failure=partial(sidecar.observers.failed, "app_port"),
        known=sidecar.controller.ids.socket,
    )
    show_listening(sidecar.metrics.registry, lambda: watch.is_listening)
    return watch


def show_listening(registry: CollectorRegistry, is_listening: Callable[[], bool]) -> None:
    """Add the metric that shows what the last look at the port has seen."""
    help_text = "Whether something listens at the app's port; only with ARBITER_APP_PORT."
    Gauge("arbiter_app_listening", help_text, registry=registry).set_function(lambda: float(is_listening()))
