"""Builds the part that watches the app's port."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge

from sidecar.config import addresses
from sidecar.core.types import State
from sidecar.inputs.app_port import AppPort
from sidecar.telemetry.log import logger

if TYPE_CHECKING:
    from sidecar.config.settings import Config
    from sidecar.controller.container_controller import Controller
    from sidecar.inputs.app_port import Offer
    from sidecar.telemetry.observers import Observers


def app_port(
    config: Config, controller: Controller, offer: Offer, observers: Observers, registry: CollectorRegistry
) -> AppPort:
    """Build the watch of ``ARBITER_APP_PORT``, and the metric that shows what it sees. ``offer`` takes reports."""
    at = config.app.app_port
    watch = AppPort(
        addresses.port_of(at),
        offer=offer,
        is_well=lambda: controller.snapshot.container.state is State.UP,
        on_failure=partial(observers.failed, "app_port"),
        on_absent=lambda: logger.warning(nobody_listens(at)),
        grace_s=config.judging.grace,
        known=controller.ids.socket,
    )
    show_listening(registry, lambda: watch.is_listening)
    return watch


def nobody_listens(at: str) -> str:
    """The sentence for a person about the value of ``ARBITER_APP_PORT``."""
    return f"nobody listens at ARBITER_APP_PORT {at}: a restart of the app in place is not noticed"


def show_listening(registry: CollectorRegistry, is_listening: Callable[[], bool]) -> None:
    """Add the metric that shows what the last look at the port has seen."""
    help_text = "Whether something listens at the app's port; only with ARBITER_APP_PORT."
    Gauge("arbiter_app_listening", help_text, registry=registry).set_function(lambda: float(is_listening()))
