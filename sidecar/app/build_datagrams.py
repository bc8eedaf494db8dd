"""Builds and opens the input of StatsD datagrams. Imported only if a socket is configured: it costs 0.2 MiB."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sidecar.config import addresses
from sidecar.core.types import Report
from sidecar.inputs.datagram import Datagrams
from sidecar.net.sockets import naming_setting
from sidecar.telemetry.container_metrics import DatagramReadings
from sidecar.telemetry.log import logger

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from sidecar.config.settings import StatsdConfig

Offer = Callable[[Sequence[Report]], bool]
"""Takes reports; False if too many are waiting."""


async def open_datagrams(
    config: StatsdConfig,
    offer: Offer,
    *,
    registry: CollectorRegistry,
    on_failure: Callable[[Exception], None],
) -> Datagrams:
    """Open the sockets for datagrams. Raises ``CannotListenError``."""
    datagrams = Datagrams(offer, on_failure=on_failure, on_advice=logger.warning, prefix=config.statsd_prefix)
    try:
        if config.statsd_listen != addresses.OFF:
            with naming_setting("ARBITER_STATSD_LISTEN", config.statsd_listen):
                await datagrams.open_udp(*addresses.split(config.statsd_listen))
        if config.statsd_socket:
            with naming_setting("ARBITER_STATSD_SOCKET", config.statsd_socket):
                await datagrams.open_unix(config.statsd_socket)
    except BaseException:
        datagrams.close()
        raise
    registry.register(DatagramReadings(lambda: datagrams.counts))
    return datagrams
